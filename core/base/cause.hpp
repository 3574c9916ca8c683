// Why a call failed, a member was removed or a peer was refused: a kind with its parameters.
//
// Completions, messages and records carry causes, and programs compare kinds. to_text() is called where somebody reads
// the text. The compiler checks that a cause gets the parameters that its text names:
//   make_cause<CauseKind::scratch_limit>(needed, limit)
#pragma once

#include "core/base/cause_kinds.hpp"
#include "core/base/ids.hpp"

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace pccl::core {

struct Cause {
    CauseKind kind = CauseKind::none;
    std::vector<std::uint64_t> numbers;
    std::vector<Uuid> peers;
    std::vector<std::string> texts;
    std::vector<Cause> behind;  // at most one: what led to this

    bool empty() const { return kind == CauseKind::none; }
    // Whether this cause, or one behind it, is of this kind.
    bool has(CauseKind other) const { return find(other) != nullptr; }
    // The first one of this kind; null: none is.
    const Cause* find(CauseKind other) const {
        for (const Cause* c = this; c != nullptr; c = c->next()) {
            if (c->kind == other) return c;
        }
        return nullptr;
    }
    const Cause* next() const { return behind.empty() ? nullptr : &behind.front(); }
    friend bool operator==(const Cause&, const Cause&) = default;
};

std::string to_text(const Cause& cause);

// The kinds of placeholders in a text, in order, such as "pnc".
struct CauseShape {
    char letters[8] = {};
    std::size_t size = 0;
    friend constexpr bool operator==(const CauseShape& a, const CauseShape& b) {
        if (a.size != b.size) return false;
        for (std::size_t i = 0; i < a.size; ++i) {
            if (a.letters[i] != b.letters[i]) return false;
        }
        return true;
    }
    constexpr std::size_t count(char letter) const {
        std::size_t n = 0;
        for (std::size_t i = 0; i < size; ++i) n += letters[i] == letter ? 1 : 0;
        return n;
    }
};
constexpr CauseShape shape_of(std::string_view text) {
    CauseShape shape;
    for (std::size_t i = 0; i + 2 < text.size(); ++i) {
        if (text[i] == '{' && text[i + 2] == '}') shape.letters[shape.size++] = text[i + 1];
    }
    return shape;
}
constexpr CauseShape shape_of(CauseKind kind) { return shape_of(cause_texts[static_cast<std::size_t>(kind)]); }

namespace detail {

template <class Argument>
constexpr char cause_letter() {
    using Plain = std::remove_cvref_t<Argument>;
    if constexpr (std::is_same_v<Plain, Uuid>)
        return 'p';
    else if constexpr (std::is_same_v<Plain, Cause>)
        return 'c';
    else if constexpr (std::integral<Plain>)
        return 'n';
    else
        return 't';
}

template <class Argument>
void add_to(Cause& cause, Argument&& argument) {
    constexpr char letter = cause_letter<Argument>();
    if constexpr (letter == 'p')
        cause.peers.push_back(argument);
    else if constexpr (letter == 'c')
        cause.behind.push_back(std::forward<Argument>(argument));
    else if constexpr (letter == 'n')
        cause.numbers.push_back(static_cast<std::uint64_t>(argument));
    else
        cause.texts.emplace_back(std::forward<Argument>(argument));
}

}  // namespace detail

template <CauseKind kind, class... Arguments>
Cause make_cause(Arguments&&... arguments) {
    static_assert(CauseShape{{detail::cause_letter<Arguments>()...}, sizeof...(Arguments)} == shape_of(kind),
                  "the parameters are not those that the text of this kind names");
    Cause made;
    made.kind = kind;
    (detail::add_to(made, std::forward<Arguments>(arguments)), ...);
    return made;
}

// For a kind that is known at run time only, and has no parameters.
Cause plain_cause(CauseKind kind);

}  // namespace pccl::core
