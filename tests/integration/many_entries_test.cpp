// A shared state of very many entries, all of which differ. The plan, the lists of keys and hashes, and the requests
// for missing content are larger than any frame. PCCL_TEST_ENTRIES sets the number (./dev nightly entries: as many as
// the limit).
#include "local_members.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

using namespace integration;

namespace {

std::size_t entry_count() {
    const char* text = std::getenv("PCCL_TEST_ENTRIES");
    return text == nullptr ? 60'000 : std::strtoull(text, nullptr, 10);
}

struct Member {
    std::vector<float> values;
    std::vector<pcclTensorInfo_t> infos;
    pcclResult_t result = pcclInternalError;
    pcclSharedStateSyncInfo_t info{};

    Member(const std::vector<std::string>& names, float value) : values(names.size(), value), infos(names.size()) {
        for (std::size_t i = 0; i < names.size(); ++i) {
            infos[i].name = names[i].c_str();
            infos[i].data = &values[i];
            infos[i].count = 1;
            infos[i].datatype = pcclFloat;
        }
    }
    void synchronize(pcclComm_t* comm, std::uint64_t revision) {
        pcclSharedState_t state{};
        state.revision = revision;
        state.count = infos.size();
        state.infos = infos.data();
        result = pcclSynchronizeSharedState(comm, &state, PCCL_SHARED_STATE_SYNC_STRATEGY_ENFORCE_POPULAR, &info);
    }
};

std::string peak_memory() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("VmHWM:", 0) == 0) return line.substr(line.find_first_of("0123456789"));
    }
    return "unknown";
}

void synchronize(LocalRun& run, std::array<Member, 2>& members, std::uint64_t revision) {
    std::thread other([&] { members[1].synchronize(run[1], revision); });
    members[0].synchronize(run[0], revision);
    other.join();
}

void play(std::size_t name_bytes) {
    const std::size_t count = entry_count();
    std::vector<std::string> names(count);
    for (std::size_t i = 0; i < count; ++i) {
        names[i] = std::to_string(i);
        names[i].insert(0, name_bytes - std::min(name_bytes, names[i].size()), 'n');
    }
    LocalRun run(2);
    std::array<Member, 2> members{Member(names, 1.0f), Member(names, 2.0f)};
    const auto begin = std::chrono::steady_clock::now();
    synchronize(run, members, 0);
    const auto all = std::chrono::steady_clock::now();
    for (const Member& member : members) REQUIRE(member.result == pcclSuccess);
    // The member that was admitted first wins, and the other one receives all of it.
    CHECK(members[1].info.rx_bytes == count * sizeof(float));
    CHECK(members[0].values == std::vector<float>(count, 1.0f));
    CHECK(members[1].values == members[0].values);
    // Now nothing differs except a single entry.
    members[1].values[count / 2] = 3.0f;
    const auto one = std::chrono::steady_clock::now();
    synchronize(run, members, 1);
    const auto end = std::chrono::steady_clock::now();
    for (const Member& member : members) REQUIRE(member.result == pcclSuccess);
    CHECK(members[0].info.rx_bytes + members[1].info.rx_bytes == sizeof(float));
    CHECK(members[1].values == members[0].values);
    // The entry in which the two states differ is found among all their keys.
    names[count - 1] += "!";
    members[1].infos[count - 1].name = names[count - 1].c_str();
    std::string shorter = names[count - 1].substr(0, names[count - 1].size() - 1);
    members[0].infos[count - 1].name = shorter.c_str();
    const auto other = std::chrono::steady_clock::now();
    synchronize(run, members, 2);
    const auto last = std::chrono::steady_clock::now();
    CHECK(members[0].result == pcclSuccess);
    CHECK(members[1].result == pcclInvalidUsage);
    const auto seconds = [](auto time) { return std::chrono::duration<double>(time).count(); };
    std::cout << count << " entries with names of " << name_bytes << " bytes: all differ " << seconds(all - begin)
              << " s, one differs " << seconds(end - one) << " s, keys differ " << seconds(last - other)
              << " s, most memory of both members and the master " << peak_memory() << "\n";
}

}  // namespace

TEST_CASE("very many entries with short names") { play(8); }
TEST_CASE("very many entries with names of 200 bytes") { play(200); }
