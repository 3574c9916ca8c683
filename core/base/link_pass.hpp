// Passes, by which two peers prove their names to each other when one dials the other.
//
// The master sends each peer a key (with its welcome), and each dialler a pass for its target. A pass is the two
// secrets that the greetings must contain. They are derived from the target's key and the dialler's name. So a target
// checks all diallers with one key, and a pass is worthless under another name or at another peer. The messages are not
// encrypted: a pass does not protect against an attacker that can read the traffic.
#pragma once

#include "core/base/ids.hpp"
#include "core/base/secret.hpp"

#include <cstring>
#include <optional>
#include <string>

namespace pccl::core {

struct LinkPass {
    Secret hello{};    // the dialler sends it
    Secret welcome{};  // the target answers with it
};

inline LinkPass link_pass(const Secret& key, const Uuid& from) {
    std::string message = "hello  ";
    message.append(reinterpret_cast<const char*>(from.bytes.data()), from.bytes.size());
    LinkPass pass;
    pass.hello = derive(key, message);
    message.replace(0, 7, "welcome");
    pass.welcome = derive(key, message);
    return pass;
}

// The keys of a target: the present one and the one before, because passes from that one may still be in flight.
class LinkKeys {
public:
    void renew(const Secret& key) {
        if (has_key_ && key == key_) return;
        before_ = has_key_ ? key_ : key;
        key_ = key;
        has_key_ = true;
    }
    void forget() { has_key_ = false; }
    // The pass that the dialler proved to have; none: it is not the peer that it claims to be.
    std::optional<LinkPass> pass_of(const Uuid& from, const std::string& shown) const {
        if (!has_key_) return std::nullopt;
        for (const Secret& key : {key_, before_}) {
            const LinkPass pass = link_pass(key, from);
            if (same_secret(pass.hello, shown)) return pass;
        }
        return std::nullopt;
    }

private:
    Secret key_{}, before_{};
    bool has_key_ = false;
};

}  // namespace pccl::core
