// One handler for each alternative of a variant: std::visit(Overload{...}, variant) does not compile when one is
// missing.
#pragma once

namespace pccl::core {

template <class... Handlers>
struct Overload : Handlers... {
    using Handlers::operator()...;
};
template <class... Handlers>
Overload(Handlers...) -> Overload<Handlers...>;

}  // namespace pccl::core
