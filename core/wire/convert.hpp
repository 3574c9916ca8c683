// Conversions between protocol buffer fields and the core's own types. Readers validate; false: the field is invalid.
#pragma once

#include "core/base/gang.hpp"
#include "core/base/ids.hpp"
#include "core/base/limits.hpp"
#include "core/base/link_pass.hpp"
#include "core/base/way.hpp"
#include "core/events.hpp"
#include "core/wire/causes.hpp"
#include "core/wire/control.pb.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace pccl::core {

inline std::string to_bytes(const Uuid& uuid) {
    return std::string(reinterpret_cast<const char*>(uuid.bytes.data()), uuid.bytes.size());
}

inline bool read(const std::string& bytes, Uuid& uuid) {
    if (bytes.size() != uuid.bytes.size()) return false;
    std::memcpy(uuid.bytes.data(), bytes.data(), bytes.size());
    return !uuid.is_nil();
}

// For fields that this program wrote itself (journal records, or validated before).
inline Uuid uuid_of(const std::string& bytes) {
    Uuid uuid;
    if (bytes.size() == uuid.bytes.size()) std::memcpy(uuid.bytes.data(), bytes.data(), bytes.size());
    return uuid;
}

inline void write(const Endpoint& endpoint, proto::Address& address) {
    address.set_is_v6(endpoint.is_v6);
    address.set_port(endpoint.port);
    address.set_address(endpoint.address.data(), endpoint.is_v6 ? 16 : 4);
}

inline bool read(const proto::Address& address, Endpoint& endpoint) {
    if (address.port() == 0 || address.port() > 65'535) return false;
    if (address.address().size() != (address.is_v6() ? 16u : 4u)) return false;
    endpoint = Endpoint{};
    endpoint.is_v6 = address.is_v6();
    endpoint.port = static_cast<std::uint16_t>(address.port());
    std::memcpy(endpoint.address.data(), address.address().data(), address.address().size());
    // Convert an IPv4-mapped IPv6 address to IPv4, so that it is treated as IPv4.
    static constexpr char mapped[] = "\0\0\0\0\0\0\0\0\0\0\xff\xff";
    if (endpoint.is_v6 && std::memcmp(endpoint.address.data(), mapped, 12) == 0) {
        endpoint.is_v6 = false;
        std::memmove(endpoint.address.data(), endpoint.address.data() + 12, 4);
        std::memset(endpoint.address.data() + 4, 0, 12);
    }
    return true;
}

// The pass for a target that the master named. If a field is missing or invalid, returns an empty pass, which proves
// nothing.
template <class Target>
LinkPass pass_from(const Target& target) {
    LinkPass pass;
    if (!read(target.pass_hello(), pass.hello) || !read(target.pass_welcome(), pass.welcome)) return {};
    return pass;
}

// The addresses of a target that the master named. False: they cannot be read.
template <class Target>
bool read_addresses(const Target& target, Addresses& addresses) {
    addresses = {};
    if (!read(target.address(), addresses.usual)) return false;
    if (!target.has_other_address()) return true;
    addresses.other_first = target.other_first();
    return read(target.other_address(), addresses.other);
}

template <class Target>
void write(const Addresses& addresses, Target& target) {
    write(addresses.usual, *target.mutable_address());
    if (addresses.other.port == 0) return;
    write(addresses.other, *target.mutable_other_address());
    target.set_other_first(addresses.other_first);
}

inline void write(const Gang& gang, proto::Gang& to) {
    to.set_name(gang.name);
    to.set_size(gang.size);
    to.set_place(gang.place);
}

// For fields that this program wrote itself.
inline Gang gang_of(const proto::Gang& gang) { return {gang.name(), gang.size(), gang.place()}; }

// Whether a gang can be as declared. Names are printable ASCII, because they stand in logs and in the status.
inline bool is_possible(const Gang& gang, const Limits& limits) {
    return !gang.none() && gang.name.size() <= limits.gang_name_bytes_max && gang.size <= limits.gang_size_max &&
           gang.place < gang.size &&
           std::all_of(gang.name.begin(), gang.name.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
}

inline void write(const Hash128& hash, proto::Hash& to) {
    to.set_low(hash.low);
    to.set_high(hash.high);
}

inline Hash128 hash_of(const proto::Hash& hash) { return Hash128{hash.low(), hash.high()}; }

// Writes the sizes as the master sends them to a peer of `group`.
inline void write(const proto::Sizes& sizes, GroupId group, proto::View& view) {
    view.set_epoch(sizes.epoch());
    view.set_gangs(sizes.gangs());
    for (const auto& entry : sizes.groups()) {
        view.set_global_world(view.global_world() + entry.size());
        view.set_groups(view.groups() + 1);
        if (entry.group() == group) view.set_group_world(entry.size());
        if (entry.size() > view.largest_group()) view.set_largest_group(entry.size());
    }
}

// Each attribute but the number of gangs is at least 1, even if the epoch has no members.
inline Attributes attributes_of(const proto::View& view) {
    const auto at_least_one = [](std::uint32_t value) { return value == 0 ? 1 : value; };
    return Attributes{at_least_one(view.global_world()), at_least_one(view.group_world()), at_least_one(view.groups()),
                      at_least_one(view.largest_group()), view.gangs()};
}

inline void read(const proto::View& view, Completion& completion) {
    completion.epoch = view.epoch();
    completion.attributes = attributes_of(view);
}

// The result for the peer of `seat`, which is one of the decision's.
inline std::uint32_t result_in(const proto::Decision& decision, const proto::Seat& seat) {
    return seat.result() != 0 ? seat.result() : decision.result();
}

inline Result result_of(std::uint32_t value) {
    return value <= 12 ? static_cast<Result>(value) : Result::internal_error;
}

// What an answer says to the call that it ends.
inline Completion completion_of(const proto::Answer& answer) {
    Completion completion;
    completion.result = result_of(answer.result());
    if (answer.has_cause()) completion.cause = cause_of(answer.cause());
    read(answer.view(), completion);
    return completion;
}
// The same for a call that has failed, whatever the answer says.
inline Completion failure_in(const proto::Answer& answer) {
    Completion completion = completion_of(answer);
    if (completion.result == Result::success) completion.result = Result::internal_error;
    return completion;
}

inline std::string encode(const google::protobuf::MessageLite& message) { return message.SerializeAsString(); }

template <class Message>
bool decode(std::span<const std::uint8_t> body, Message& message) {
    return message.ParseFromArray(body.data(), static_cast<int>(body.size()));
}

}  // namespace pccl::core
