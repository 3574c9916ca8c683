// The table of settings: each value of the environment, each configuration, and the page that is generated from it.
// PCCL_WRITE_DOCS=1 in the environment of this program rewrites the table of docs/settings.md.
#include "net-real/settings.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

using namespace pccl;
using namespace pccl::real;

namespace {

bool takes(Setting setting, const char* text) {
    EnvironmentSettings settings;
    std::string why;
    const bool taken = apply_setting(setting, text, settings, why);
    CHECK(taken == why.empty());
    if (!taken) CHECK(why.find(info_of(setting).name) != std::string::npos);
    return taken;
}

// Sets one environment variable for the length of a scope.
class Variable {
public:
    Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
    ~Variable() { unsetenv(name_); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

private:
    const char* name_;
};

std::string file_text(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("every setting takes its limits and refuses what lies beyond") {
    struct Row {
        Setting setting;
        const char* good[3];
        const char* bad[3];
    };
    const Row rows[] = {
        {Setting::peer_timeout, {"200", "86400000", "10000"}, {"199", "86400001", "ten"}},
        {Setting::master_timeout, {"0", "86400000", "1"}, {"-1", "86400001", "1s"}},
        {Setting::bind_address, {"*", "127.0.0.1", "::1"}, {"host", "127.0.0.1:80", ""}},
        {Setting::port_range, {"0", "48149-48404", "9"}, {"0-9", "9-8", "65536"}},
        {Setting::concurrent_ops, {"1", "4096", "16"}, {"0", "4097", ""}},
        {Setting::advertise_address, {"10.0.0.1", "10.0.0.1:80", "[::1]:80"}, {"[::1", "1.2.3", ":80"}},
        {Setting::vote_warn, {"1", "86400", "30"}, {"0", "86401", "x"}},
        {Setting::vote_timeout, {"0", "86400", "30"}, {"-1", "86401", "x"}},
        {Setting::journal_timeout, {"0", "86400", "30"}, {"-1", "86401", "x"}},
        {Setting::chunk_size, {"4096", "4194304", "262144"}, {"4095", "4194305", "4100"}},
        {Setting::benchmark_connections, {"1", "64", "16"}, {"0", "65", "x"}},
        {Setting::scratch_bytes, {"0", "1048576", "999999999999"}, {"1", "1048575", "1G"}},
        {Setting::tcp_congestion,
         {"cubic", "bbr", "reno"},
         {"a-name-of-sixteen", "another-name-too-long", "xxxxxxxxxxxxxxxx"}},
        {Setting::shared_memory, {"0", "1", "1"}, {"2", "yes", ""}},
        {Setting::io_threads, {"1", "64", "2"}, {"0", "65", "many"}},
        {Setting::port_mapping, {"0", "1", "1"}, {"2", "yes", ""}},
        {Setting::log_level, {"warn", "NONE", "Trace"}, {"LOUD", "1", "warning!"}},
    };
    for (const Row& row : rows) {
        for (const char* text : row.good) {
            INFO(info_of(row.setting).name << "=" << text);
            CHECK(takes(row.setting, text));
        }
        for (const char* text : row.bad) {
            INFO(info_of(row.setting).name << "=" << text);
            CHECK_FALSE(takes(row.setting, text));
        }
    }
}

TEST_CASE("a master reads no setting of peers: it would look up a name") {
    const Variable advertised("PCCL_ADVERTISE_ADDRESS", "192.0.2.7:1");
    const Variable timeout("PCCL_PEER_TIMEOUT_MS", "1234");
    CHECK(read_environment(Reader::peer).advertised.has_value());
    const EnvironmentSettings settings = read_environment(Reader::master);
    CHECK_FALSE(settings.advertised.has_value());
    CHECK(settings.peer_timeout == 1234 * pccl::core::millisecond);
}

TEST_CASE("a value of the environment that cannot be used leaves the default") {
    const Variable good("PCCL_VOTE_TIMEOUT_S", "7");
    const Variable bad("PCCL_MULTIPLEX_CHUNK_SIZE", "12345");
    const Variable empty("PCCL_PEER_TIMEOUT_MS", "");
    const EnvironmentSettings settings = read_environment();
    CHECK(settings.vote_timeout == 7 * core::second);
    CHECK(settings.chunk_bytes == EnvironmentSettings{}.chunk_bytes);
    CHECK(settings.peer_timeout == EnvironmentSettings{}.peer_timeout);
}

TEST_CASE("a refused value changes nothing") {
    EnvironmentSettings settings;
    std::string why;
    CHECK_FALSE(apply_setting(Setting::port_range, "70000", settings, why));
    CHECK(settings.port_first == EnvironmentSettings{}.port_first);
    CHECK_FALSE(apply_setting(Setting::chunk_size, "4100", settings, why));
    CHECK(settings.chunk_bytes == EnvironmentSettings{}.chunk_bytes);
}

TEST_CASE("docs/settings.md holds the table as it is") {
    const std::string path = std::string(PCCL_SOURCE_DIR) + "/docs/settings.md";
    const std::string begin = "<!-- table: generated from net-real/settings.cpp by test_net_real_settings -->\n";
    const std::string end = "<!-- end of table -->\n";
    std::string text = file_text(path);
    const std::size_t first = text.find(begin);
    const std::size_t last = text.find(end);
    REQUIRE(first != std::string::npos);
    REQUIRE(last != std::string::npos);
    const std::size_t from = first + begin.size();
    if (std::getenv("PCCL_WRITE_DOCS") != nullptr) {
        text.replace(from, last - from, setting_markdown());
        std::ofstream(path) << text;
        SUCCEED("written");
        return;
    }
    INFO("PCCL_WRITE_DOCS=1 bin/test_net_real_settings writes it anew");
    CHECK(text.substr(from, last - from) == setting_markdown());
}
