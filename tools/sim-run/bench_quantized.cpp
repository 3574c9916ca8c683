// The cost of quantization on a core, and its gain on a link: `sim-run --bench quantized`.
#include "core/numeric/quantize.hpp"
#include "harness/gigabit.hpp"
#include "harness/run.hpp"
#include "tools/sim-run/bench.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace pccl::tools {
namespace {

using namespace pccl::core;

constexpr Quantization to_bytes{QuantizationAlgorithm::min_max, CodeType::u8, DistributionHint::none};

constexpr std::uint32_t judged_mib = 64;  // below it, round trips of votes and hops are a large part

// Seconds of virtual time that one all-reduce takes; 0 if a promise was broken.
double simulated_seconds(std::uint32_t peers, std::uint32_t elements, bool quantized) {
    const harness::Verdict v = harness::run(harness::gigabit_scenario(peers, elements, quantized));
    if (!v.held()) {
        std::printf("FAILED  oracle %s\n  %s\n", v.violation.oracle.c_str(), v.violation.reason.c_str());
        return 0;
    }
    return static_cast<double>(v.reduce_time) / 1e9;
}

bool bench_link() {
    std::printf("One all-reduce of f32 on links of 1 Gbit/s, 10 ms round trip, 4 stripes; quantized: MinMax to u8\n");
    std::printf("%5s %9s %12s %12s %12s %12s\n", "peers", "MiB", "wire bytes", "f32", "quantized", "faster");
    bool good = true;
    for (const std::uint32_t peers : {3u, 4u, 8u}) {
        for (const std::uint32_t mib : {16u, 64u, 256u}) {
            const std::uint32_t elements = mib << 18;
            const double share = static_cast<double>(numeric::wire_bytes(to_bytes, DataType::f32, elements)) /
                                 (4.0 * static_cast<double>(elements));
            const double plain = simulated_seconds(peers, elements, false);
            const double quantized = simulated_seconds(peers, elements, true);
            if (plain == 0 || quantized == 0) return false;
            std::printf("%5u %9u %10.1f %% %10.3f s %10.3f s %10.2f x\n", peers, mib, 100 * share, plain, quantized,
                        plain / quantized);
            good = good && share <= 0.26 && (mib < judged_mib || plain / quantized >= 3);
        }
    }
    std::printf("%s at most 26 %% of the bytes and, from %u MiB, at least 3 times as fast\n",
                good ? "Everywhere" : "NOT everywhere", judged_mib);
    return good;
}

template <class Work>
double gigabytes_per_second(std::size_t bytes, const Work& work) {
    double best = 1e9;
    for (int round = 0; round < 20; ++round) {
        const auto begin = std::chrono::steady_clock::now();
        work();
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return static_cast<double>(bytes) / best / 1e9;
}

void bench_kernels() {
    // One full slice of 256 KiB on the wire.
    const std::size_t count = numeric::elements_within(to_bytes, DataType::f32, 256u << 10);
    std::vector<float> values(count), own(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<float>(i * 2654435761u % 1000) / 1000 - 0.5f;
        own[i] = values[count - 1 - i];
    }
    std::printf("\nKernels on one core, GB/s of f32 (best of 20)\n%-18s %6s %10s %12s %8s\n", "", "codes", "quantize",
                "dequantize", "hop");
    for (const auto algorithm : {QuantizationAlgorithm::min_max, QuantizationAlgorithm::zero_point_scale}) {
        for (const auto& [type, name] : {std::pair{CodeType::u4, "u4"}, std::pair{CodeType::u8, "u8"},
                                         std::pair{CodeType::u16, "u16"}, std::pair{CodeType::u32, "u32"}}) {
            const Quantization how{algorithm, type, DistributionHint::normal};
            std::vector<unsigned char> wire(numeric::wire_bytes(how, DataType::f32, count)), next(wire.size());
            const double there = gigabytes_per_second(
                4 * count, [&] { numeric::quantize(how, DataType::f32, wire.data(), values.data(), count); });
            const double back = gigabytes_per_second(
                4 * count, [&] { numeric::dequantize(how, DataType::f32, values.data(), wire.data(), count); });
            const double hop = gigabytes_per_second(4 * count, [&] {
                numeric::reduce_quantized(how, DataType::f32, ReduceOp::sum, next.data(), wire.data(), own.data(),
                                          count, 0);
            });
            std::printf("%-18s %6s %10.2f %12.2f %8.2f\n",
                        algorithm == QuantizationAlgorithm::min_max ? "min-max" : "zero-point-scale", name, there, back,
                        hop);
        }
    }
}

}  // namespace

bool bench_quantized() {
    const bool good = bench_link();
    bench_kernels();
    return good;
}

}  // namespace pccl::tools
