#include "core/wire/causes.hpp"

#include "core/base/probe.hpp"
#include "core/wire/bounds.hpp"
#include "core/wire/convert.hpp"

#include <algorithm>

namespace pccl::core {

namespace {

// A cause behind a cause, and so on. The master puts at most three behind each other.
constexpr int depth_max = 6;

Cause read_cause(const proto::Cause& from, int depth) {
    const auto fits = [&] {
        if (from.kind() == 0 || from.kind() >= cause_kinds) return false;
        const CauseShape shape = shape_of(static_cast<CauseKind>(from.kind()));
        return static_cast<std::size_t>(from.numbers_size()) == shape.count('n') &&
               static_cast<std::size_t>(from.peers_size()) == shape.count('p') &&
               static_cast<std::size_t>(from.texts_size()) == shape.count('t') &&
               from.has_because() == (shape.count('c') != 0) && (!from.has_because() || depth < depth_max);
    };
    if (!fits()) {
        PROBE(cause_unknown);
        return make_cause<CauseKind::unknown>(from.kind());
    }
    Cause cause;
    cause.kind = static_cast<CauseKind>(from.kind());
    cause.numbers.assign(from.numbers().begin(), from.numbers().end());
    for (const std::string& peer : from.peers()) cause.peers.push_back(uuid_of(peer));
    cause.texts.assign(from.texts().begin(), from.texts().end());
    if (from.has_because()) cause.behind.push_back(read_cause(from.because(), depth + 1));
    return cause;
}

}  // namespace

void write(const Cause& cause, proto::Cause& to) {
    to.Clear();
    to.set_kind(static_cast<std::uint32_t>(cause.kind));
    for (const std::uint64_t number : cause.numbers) to.add_numbers(number);
    for (const Uuid& peer : cause.peers) to.add_peers(to_bytes(peer));
    for (const std::string& text : cause.texts) to.add_texts(text);
    if (const Cause* behind = cause.next()) write(*behind, *to.mutable_because());
}

Cause cause_of(const proto::Cause& from) { return read_cause(from, 0); }

void wire::bound_cause(proto::Cause& cause, std::size_t bytes_max) {
    for (proto::Cause* c = &cause;; c = c->mutable_because()) {
        for (std::string& text : *c->mutable_texts()) {
            bound_text(text, bytes_max);
            bytes_max -= std::min(bytes_max, text.size());
        }
        if (!c->has_because()) return;
    }
}

}  // namespace pccl::core
