// Causes: what they say, and how they pass a wire.
#include "core/wire/bounds.hpp"
#include "core/wire/causes.hpp"
#include "core/wire/convert.hpp"

#include <catch2/catch.hpp>

using namespace pccl;
using namespace pccl::core;

namespace {

Cause again(const Cause& cause) {
    proto::Cause message;
    write(cause, message);
    proto::Cause read;
    REQUIRE(read.ParseFromString(message.SerializeAsString()));
    return cause_of(read);
}

Uuid peer(std::uint8_t first) {
    Uuid uuid;
    uuid.bytes[0] = first;
    return uuid;
}

}  // namespace

TEST_CASE("a text holds the parameters in order, and the cause behind it") {
    const Cause limit = make_cause<CauseKind::scratch_limit>(7, 5u);
    CHECK(to_text(limit) == "it needs 7 bytes beside its buffers, more than the limit of 5");
    const Cause cause = make_cause<CauseKind::member_cannot>(peer(0xAB), limit);
    CHECK(to_text(cause) ==
          "peer ab000000 cannot take part: it needs 7 bytes beside its buffers, more than the limit of 5");
    CHECK(cause.has(CauseKind::scratch_limit));
    CHECK(cause.find(CauseKind::scratch_limit)->numbers[1] == 5);
    CHECK_FALSE(cause.has(CauseKind::left));
    CHECK(Cause{}.empty());
    CHECK(to_text(Cause{}).empty());
}

TEST_CASE("a cause is the same behind a wire") {
    const Cause cause = make_cause<CauseKind::tag_given_up>(
        peer(1), 3, make_cause<CauseKind::tag_failed_often>(16, make_cause<CauseKind::edge_down>(peer(2), peer(3))));
    CHECK(again(cause) == cause);
    CHECK_FALSE(again(make_cause<CauseKind::edge_down>(peer(3), peer(2))) ==
                make_cause<CauseKind::edge_down>(peer(2), peer(3)));
}

TEST_CASE("a kind that is not known, and parameters that do not fit, are told as unknown") {
    proto::Cause strange;
    strange.set_kind(static_cast<std::uint32_t>(cause_kinds));
    CHECK(cause_of(strange).kind == CauseKind::unknown);
    CHECK(to_text(cause_of(strange)).find(std::to_string(cause_kinds)) != std::string::npos);

    CHECK(cause_of(proto::Cause{}).kind == CauseKind::unknown);

    proto::Cause short_of_one;
    write(make_cause<CauseKind::edge_down>(peer(2), peer(3)), short_of_one);
    short_of_one.mutable_peers()->RemoveLast();
    CHECK(cause_of(short_of_one).kind == CauseKind::unknown);

    proto::Cause too_many;
    write(make_cause<CauseKind::silent>(3), too_many);
    too_many.add_texts("more");
    CHECK(cause_of(too_many).kind == CauseKind::unknown);

    proto::Cause deep;
    for (int i = 0; i < 50; ++i) {
        proto::Cause outer;
        outer.set_kind(static_cast<std::uint32_t>(CauseKind::removed));
        *outer.mutable_because() = deep;
        deep = outer;
    }
    CHECK(cause_of(deep).has(CauseKind::unknown));
}

TEST_CASE("all texts of a cause together stay within the bound") {
    proto::Cause cause;
    write(make_cause<CauseKind::removed>(make_cause<CauseKind::schema_differs>(std::string(900, 'a'))), cause);
    cause.add_texts(std::string(900, 'b'));
    wire::bound_cause(cause, 1000);
    CHECK(cause.texts(0).size() == 900);
    CHECK(cause.because().texts(0).size() == 100);
}
