// Included ahead of everything in the switched copy of the tree: each change of plant.py asks here whether it is the
// chosen one. The environment variable PCCL_MUTANT names it; 0 or nothing: the core is as it was.
#pragma once

namespace mutation {

extern int chosen;
extern unsigned char reached[];  // by number: the run came there; written to the file PCCL_REACHED at the end

// gnu++17 has no std::is_constant_evaluated, and cmake tries the compiler with these flags.
constexpr bool is(int number) {
    if (__builtin_is_constant_evaluated()) return false;
    reached[number] = 1;
    return chosen == number;
}

// An end of a range that belongs to the other side.
template <class A, class B>
constexpr bool less(int number, const A& a, const B& b) {
    return is(number) ? a <= b : a < b;
}
template <class A, class B>
constexpr bool less_equal(int number, const A& a, const B& b) {
    return is(number) ? a < b : a <= b;
}
template <class A, class B>
constexpr bool greater(int number, const A& a, const B& b) {
    return is(number) ? a >= b : a > b;
}
template <class A, class B>
constexpr bool greater_equal(int number, const A& a, const B& b) {
    return is(number) ? a > b : a >= b;
}

// A summand that is missing.
template <class A, class B>
constexpr auto plus(int number, const A& a, const B& b) {
    using Sum = decltype(a + b);
    return is(number) ? Sum(a) : Sum(a + b);
}
template <class A, class B>
constexpr auto minus(int number, const A& a, const B& b) {
    using Difference = decltype(a - b);
    return is(number) ? Difference(a) : Difference(a - b);
}

// A bound that is missing: `number` takes the first argument, the number behind it the second one.
template <class A, class B>
constexpr A min(int number, const A& a, const B& b) {
    return is(number) ? a : is(number + 1) ? A(b) : a < b ? a : A(b);
}
template <class A, class B>
constexpr A max(int number, const A& a, const B& b) {
    return is(number) ? a : is(number + 1) ? A(b) : a < b ? A(b) : a;
}

}  // namespace mutation
