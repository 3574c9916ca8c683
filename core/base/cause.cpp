#include "core/base/cause.hpp"

#include "core/base/assert.hpp"

namespace pccl::core {

std::string to_text(const Cause& cause) {
    const std::string_view form = cause_texts[static_cast<std::size_t>(cause.kind)];
    std::string text;
    std::size_t number = 0, peer = 0, word = 0;
    ASSERT(shape_of(form).count('n') == cause.numbers.size() && shape_of(form).count('p') == cause.peers.size() &&
           shape_of(form).count('t') == cause.texts.size());
    for (std::size_t i = 0; i < form.size(); ++i) {
        if (form[i] != '{') {
            text += form[i];
            continue;
        }
        switch (form[i + 1]) {
        case 'n': text += std::to_string(cause.numbers[number++]); break;
        case 'p': text += short_name(cause.peers[peer++]); break;
        case 't': text += cause.texts[word++]; break;
        default: text += cause.behind.empty() ? "" : to_text(cause.behind.front()); break;
        }
        i += 2;
    }
    return text;
}

Cause plain_cause(CauseKind kind) {
    ASSERT(shape_of(kind).size == 0);
    Cause cause;
    cause.kind = kind;
    return cause;
}

}  // namespace pccl::core
