// Quantized all-reduce between real processes: special contents, all ways to quantize, equal bytes on all members,
// sizes on the wire, and the settings that must agree between members.
#include "cluster.hpp"

#include "pccl.h"

#include <catch2/catch.hpp>

using namespace integration;

namespace {

struct Way {
    int algorithm = pcclQuantMinMax;
    int codes = pcclUint8;
    int hint = pcclDistributionNone;
};

std::string arguments(const Way& way, int type, std::size_t count, std::uint64_t tag, const std::string& place, int op,
                      const std::string& kind, std::size_t member, std::size_t members) {
    std::string text = std::to_string(type) + " " + std::to_string(count) + " " + std::to_string(tag) + " " + place;
    for (const int number : {way.algorithm, way.codes, way.hint, op}) text += " " + std::to_string(number);
    return "quantized " + text + " " + kind + " " + std::to_string(member) + " " + std::to_string(members);
}

struct Quantized {
    int result = -1;
    std::uint64_t sent_bytes = 0;
    std::uint64_t received_bytes = 0;
};

Quantized on_all(Cluster& cluster, const Way& way, int type, std::size_t count, std::uint64_t tag,
                 const std::string& place, int op, const std::string& kind) {
    INFO("algorithm " << way.algorithm << " codes " << way.codes << " hint " << way.hint << " type " << type
                      << " count " << count << " op " << op << " " << place << " " << kind);
    for (std::size_t i = 0; i < cluster.size(); ++i)
        cluster[i].send(arguments(way, type, count, tag, place, op, kind, i, cluster.size()));
    Quantized last;
    std::string hash;
    for (std::size_t i = 0; i < cluster.size(); ++i) {
        const Answer answer = cluster[i].answer("quantized");
        REQUIRE(answer.result == success);
        CHECK(answer.number(2) == 1);  // within the bounds
        CHECK(answer.number(3) == 1);  // input intact
        if (hash.empty()) hash = answer.text(4);
        CHECK(answer.text(4) == hash);
        last = {answer.result, answer.number(0), answer.number(1)};
    }
    return last;
}

std::vector<Way> all_ways() {
    std::vector<Way> ways;
    for (const int codes : {int{pcclUint8}, int{pcclUint16}, int{pcclUint32}, int{pcclUint64}, int{pcclInt8},
                            int{pcclInt16}, int{pcclInt32}, static_cast<int>(pcclUint4)}) {
        ways.push_back({pcclQuantMinMax, codes, pcclDistributionNone});
        if (codes == pcclUint64) continue;
        ways.push_back({pcclQuantZeroPointScale, codes, pcclDistributionNone});
        ways.push_back({pcclQuantZeroPointScale, codes, pcclDistributionNormal});
    }
    return ways;
}

}  // namespace

TEST_CASE("every way to quantize, special contents, in and out of place") {
    for (const std::size_t members : {std::size_t{2}, std::size_t{3}}) {
        Cluster cluster(members);
        std::uint64_t tag = 0;
        for (const Way& way : all_ways()) {
            for (const char* kind : {"constant", "negative", "spread", "nan", "infinite", "subnormal"}) {
                for (const int type : {int{pcclFloat}, int{pcclDouble}}) {
                    const std::string place = tag % 2 == 0 ? "in" : "out";
                    on_all(cluster, way, type, 1024 + tag % 7, tag, place, tag % 3 == 0 ? pcclAvg : pcclSum, kind);
                    ++tag;
                }
            }
        }
        for (const int op : {int{pcclMax}, int{pcclMin}, int{pcclProd}})
            on_all(cluster, Way{}, pcclFloat, 5000, tag++, "in", op, "spread");
    }
}

TEST_CASE("counts around every border, quantized") {
    Cluster cluster(3);
    std::uint64_t tag = 0;
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{511}, std::size_t{512},
          std::size_t{1537}, std::size_t{3 * 65536 - 1}, std::size_t{3 * 65536 + 5}, std::size_t{2000003}}) {
        for (const int codes : {int{pcclUint8}, static_cast<int>(pcclUint4)}) {
            for (const char* place : {"in", "out"})
                on_all(cluster, Way{pcclQuantMinMax, codes, 0}, pcclFloat, count, tag++, place, pcclAvg, "spread");
        }
    }
}

TEST_CASE("quantized to bytes, a float travels as at most 26 % of its size") {
    Cluster cluster(4);
    constexpr std::size_t count = 1 << 20;
    const double plain = 2.0 * 3 / 4 * count * 4;
    for (const int algorithm : {int{pcclQuantMinMax}, int{pcclQuantZeroPointScale}}) {
        const Quantized info =
            on_all(cluster, Way{algorithm, pcclUint8, 0}, pcclFloat, count, 1, "in", pcclSum, "spread");
        CHECK(static_cast<double>(info.sent_bytes) <= 0.26 * plain);
        CHECK(static_cast<double>(info.received_bytes) <= 0.26 * plain);
    }
}

TEST_CASE("programs that treat subnormal numbers as zero get the same bytes as others") {
    Cluster cluster(2, {{"PCCL_TEST_FLUSH_SUBNORMALS", "1"}});
    for (const int type : {int{pcclFloat}, int{pcclDouble}})
        on_all(cluster, Way{}, type, 1000, 1, "out", pcclSum, "subnormal");
}

TEST_CASE("members that disagree about the quantization all fail, and are told who differs") {
    Cluster cluster(2);
    for (const Way& other : {Way{pcclQuantNone, pcclUint8, 0}, Way{pcclQuantMinMax, pcclInt8, 0},
                             Way{pcclQuantZeroPointScale, pcclUint8, 0}, Way{pcclQuantMinMax, pcclUint8, 1}}) {
        cluster[0].send(arguments(Way{}, pcclFloat, 1000, 5, "in", pcclSum, "spread", 0, 2));
        cluster[1].send(arguments(other, pcclFloat, 1000, 5, "in", pcclSum, "spread", 1, 2));
        for (std::size_t i = 0; i < 2; ++i) {
            const Answer answer = cluster[i].answer("quantized");
            CHECK(answer.result == invalid_argument);
            CHECK(answer.number(3) == 1);
        }
    }
    CHECK(cluster[0].says("differ in quantization algorithm: peer "));
    // With pcclQuantNone the quantized type and the hint are ignored.
    cluster[0].send(arguments(Way{pcclQuantNone, pcclUint8, 0}, pcclFloat, 1000, 5, "in", pcclSum, "constant", 0, 2));
    cluster[1].send(arguments(Way{pcclQuantNone, pcclInt64, 2}, pcclFloat, 1000, 5, "in", pcclSum, "constant", 1, 2));
    for (std::size_t i = 0; i < 2; ++i) {
        const Answer answer = cluster[i].answer("quantized");
        CHECK(answer.result == success);
        CHECK(answer.number(2) == 1);
    }
}

TEST_CASE("what cannot be quantized is refused at the launch") {
    Cluster cluster(2);
    const auto refused = [&](const Way& way, int type) {
        const Answer answer = cluster[0].ask(arguments(way, type, 100, 1, "out", pcclSum, "spread", 0, 2));
        CHECK(answer.result == invalid_argument);
        CHECK(answer.number(3) == 1);
    };
    for (const int type : {int{pcclUint8}, int{pcclInt64}, int{pcclFloat16}, int{pcclBFloat16}}) refused(Way{}, type);
    for (const int codes : {int{pcclInt64}, int{pcclFloat16}, int{pcclFloat}, int{pcclDouble}, 13, -1})
        refused(Way{pcclQuantMinMax, codes, 0}, pcclFloat);
    refused(Way{pcclQuantZeroPointScale, pcclUint64, 0}, pcclDouble);
    refused(Way{3, pcclUint8, 0}, pcclFloat);
    refused(Way{pcclQuantMinMax, pcclUint8, 3}, pcclFloat);
    on_all(cluster, Way{}, pcclFloat, 100, 1, "in", pcclSum, "constant");
}
