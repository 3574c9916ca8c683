// The contract of streams, for each kind; and ends of shared streams that lie, or die.
#include "core/base/random.hpp"
#include "net-real/tests/stream_pairs.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace pccl;
using namespace pccl::real;

namespace {

constexpr StreamKind kinds[] = {StreamKind::tcp, StreamKind::shared, StreamKind::tls};

// Byte `index` of a sequence that no shift leaves as it is.
std::uint8_t byte_at(std::uint64_t index) { return static_cast<std::uint8_t>((index * 0x9E3779B97F4A7C15u) >> 56); }

// One to three parts with `bytes` bytes of `memory`.
std::vector<iovec> cut(core::Random& random, std::uint8_t* memory, std::size_t bytes) {
    std::vector<iovec> parts;
    while (bytes > 0) {
        const std::size_t part = parts.size() == 2 ? bytes : 1 + random.below(bytes);
        parts.push_back({memory, part});
        memory += part;
        bytes -= part;
    }
    return parts;
}

// One end that sends a sequence and checks the one that it receives.
class End {
public:
    End(Stream& stream, std::uint64_t seed, std::uint64_t total) : stream_(stream), random_(seed), total_(total) {}

    bool has_sent() const { return sent_ == total_ && !stream_.has_unsent(); }
    bool has_received() const { return received_ == total_; }
    std::uint64_t received() const { return received_; }

    // False: it must wait.
    bool send() {
        if (sent_ == total_) {
            if (!stream_.send_unsent()) throw std::runtime_error("send");
            return !stream_.has_unsent();
        }
        std::vector<std::uint8_t> memory(static_cast<std::size_t>(
            std::min<std::uint64_t>(total_ - sent_, 1 + random_.below(random_.below(4) == 0 ? 40'000 : 300))));
        for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = byte_at(sent_ + i);
        const auto parts = cut(random_, memory.data(), memory.size());
        const ssize_t result = stream_.send(parts, sent_ + memory.size() < total_);
        if (result < 0 && errno == EAGAIN) return false;
        if (result <= 0) throw std::runtime_error("send");
        sent_ += static_cast<std::uint64_t>(result);
        return true;
    }
    // False: it must wait.
    bool receive() {
        std::vector<std::uint8_t> memory(1 + random_.below(random_.below(4) == 0 ? 40'000 : 300));
        const auto parts = cut(random_, memory.data(), memory.size());
        const ssize_t result = stream_.receive(parts);
        if (result < 0 && errno == EAGAIN) return false;
        if (result <= 0) throw std::runtime_error("receive");
        for (ssize_t i = 0; i < result; ++i) {
            if (memory[static_cast<std::size_t>(i)] != byte_at(received_ + static_cast<std::uint64_t>(i)))
                throw std::runtime_error("another byte");
        }
        received_ += static_cast<std::uint64_t>(result);
        return true;
    }
    // Both directions, asleep whenever neither can move. Throws when the hang guard expires.
    void run() {
        while (!has_sent() || !has_received()) {
            bool moved = false;
            if (!has_sent()) moved = send() || moved;
            if (!has_received()) moved = receive() || moved;
            if (!moved) sleep();
        }
    }

private:
    void sleep() {
        short events = 0;
        const auto add = [&](Stream::Wait wait) {
            if (wait == Stream::Wait::now) return false;
            events = static_cast<short>(events | (wait == Stream::Wait::readable ? POLLIN : POLLOUT));
            return true;
        };
        if (!has_received() && !add(stream_.input_wait())) return;
        if (!has_sent() && !add(stream_.output_wait())) return;
        pollfd one{stream_.descriptor(), events, 0};
        if (::poll(&one, 1, 60'000) <= 0) throw std::runtime_error("a wake-up was lost");
        stream_.woken();
    }

    Stream& stream_;
    core::Random random_;
    const std::uint64_t total_;
    std::uint64_t sent_ = 0;
    std::uint64_t received_ = 0;
};

ssize_t receive_into(Stream& stream, std::vector<std::uint8_t>& memory) {
    const iovec part{memory.data(), memory.size()};
    return stream.receive({&part, 1});
}

ssize_t send_from(Stream& stream, const std::string& bytes) {
    const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    return stream.send({&part, 1}, false);
}

// Reads to the end of the input. Returns what came before it.
std::string read_all(Stream& stream) {
    std::string all;
    std::vector<std::uint8_t> memory(1000);
    for (;;) {
        const ssize_t result = receive_into(stream, memory);
        if (result > 0) {
            all.append(memory.begin(), memory.begin() + result);
        } else if (result < 0 && errno == EAGAIN) {
            wait_for(stream, stream.input_wait());
        } else {
            return all;
        }
    }
}

// ---- an end that speaks the protocol by hand: the layout is repeated here on purpose

constexpr std::size_t ring_bytes = 4096;
constexpr std::size_t segment_bytes = 4096 + 2 * ring_bytes;

struct HandHello {
    char magic[8] = {'p', 'c', 'c', 'l', 's', 'h', 'm', '1'};
    std::uint64_t ring = ring_bytes;
    std::uint8_t source[16] = {127, 0, 0, 1};
    std::uint8_t rest[8] = {};
};

struct HandToken {
    char magic[8] = {'p', 'c', 'c', 'l', 't', 'o', 'k', '1'};
    std::uint8_t token[16] = {};
};

int memory_file(std::size_t bytes, int seals) {
    const int file = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(file >= 0);
    REQUIRE(::ftruncate(file, static_cast<off_t>(bytes)) == 0);
    REQUIRE(::fcntl(file, F_ADD_SEALS, seals) == 0);
    return file;
}

constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;

void pass(int socket, const void* data, std::size_t bytes, const std::vector<int>& files) {
    iovec part{const_cast<void*>(data), bytes};
    alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!files.empty()) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
        cmsghdr* const passed = CMSG_FIRSTHDR(&message);
        passed->cmsg_level = SOL_SOCKET;
        passed->cmsg_type = SCM_RIGHTS;
        passed->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
        std::memcpy(CMSG_DATA(passed), files.data(), files.size() * sizeof(int));
    }
    REQUIRE(::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes));
}

// A dialler that maps the segment itself, so that it can write anything into it.
struct Liar {
    UnixPair sockets;
    std::uint8_t* base = nullptr;
    SharedMemoryUse use{0, std::uint64_t{1} << 30};
    std::unique_ptr<SharedStream> victim = SharedStream::accepted(sockets.b, use);

    Liar() {
        const int file = memory_file(segment_bytes, size_seals);
        base = static_cast<std::uint8_t*>(::mmap(nullptr, segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
        REQUIRE(base != MAP_FAILED);
        base[0] = 77;
        const HandHello hello;
        pass(sockets.a, &hello, sizeof hello, {file});
        ::close(file);
        std::string reason;
        REQUIRE(victim->open(reason) == Stream::Opening::waiting);
        HandToken reply;
        REQUIRE(::recv(sockets.a, &reply, sizeof reply, 0) == sizeof reply);
        CHECK(reply.token[0] == 77);
    }
    void confirm() {
        HandToken confirmation;
        std::memcpy(confirmation.token, base + 16, 16);
        pass(sockets.a, &confirmation, sizeof confirmation, {});
        std::string reason;
        REQUIRE(victim->open(reason) == Stream::Opening::open);
    }
    ~Liar() {
        ::munmap(base, segment_bytes);
        ::close(sockets.a);
    }
    // Ring 0 is written by the dialler, ring 1 by the acceptor.
    RingHeader& ring(std::size_t index) { return *reinterpret_cast<RingHeader*>(base + 128 + index * 512); }
};

}  // namespace

TEST_CASE("bytes arrive in order, whatever the parts, and then the end") {
    for (const StreamKind kind : kinds) {
        for (std::uint64_t seed = 1; seed <= 20; ++seed) {
            INFO(name_of(kind) << " seed " << seed);
            core::Random random(seed);
            StreamPair pair(kind, std::size_t{4096} << random.below(4));
            const std::uint64_t total = 200'000 + random.below(1000);
            End a(*pair.a, seed, total), b(*pair.b, seed + 100, total);
            while (!b.has_received()) {
                if (!a.has_sent() && random.below(2) == 0)
                    a.send();
                else
                    b.receive();
            }
            pair.a->shut_down_output();
            CHECK(read_all(*pair.b).empty());
            // The other direction is still open.
            CHECK(send_from(*pair.b, "last words") == 10);
            pair.b->shut_down_output();
            CHECK(read_all(*pair.a) == "last words");
        }
    }
}

TEST_CASE("no wake-up is lost when both ends sleep and wake each other") {
    for (const StreamKind kind : kinds) {
        for (std::uint64_t seed = 1; seed <= 6; ++seed) {
            INFO(name_of(kind) << " seed " << seed);
            StreamPair pair(kind, 4096);
            constexpr std::uint64_t total = 3'000'000;
            End a(*pair.a, seed, total), b(*pair.b, seed + 100, total);
            std::string failure;
            std::thread other([&] {
                try {
                    b.run();
                } catch (const std::exception& error) {
                    failure = error.what();
                    pair.b->shut_down_output();
                }
            });
            std::string mine;
            try {
                a.run();
            } catch (const std::exception& error) {
                mine = error.what();
                pair.a->shut_down_output();
            }
            other.join();
            CHECK(mine == "");
            CHECK(failure == "");
        }
    }
}

TEST_CASE("what was sent before an end was closed is received, and then the end is seen") {
    for (const StreamKind kind : kinds) {
        INFO(name_of(kind));
        StreamPair pair(kind, 1 << 16);
        REQUIRE(send_from(*pair.a, std::string(5000, 'x')) == 5000);
        pair.a->close();
        CHECK(read_all(*pair.b) == std::string(5000, 'x'));
    }
}

TEST_CASE("an end that waits for input is woken by the end of the input") {
    for (const StreamKind kind : kinds) {
        INFO(name_of(kind));
        StreamPair pair(kind, 4096);
        REQUIRE(pair.b->input_wait() == Stream::Wait::readable);
        pair.a->shut_down_output();
        wait_for(*pair.b, Stream::Wait::readable);
        CHECK(read_all(*pair.b).empty());
    }
}

TEST_CASE("an end whose other end is closed while it waits for room is woken, and cannot send") {
    for (const StreamKind kind : kinds) {
        INFO(name_of(kind));
        StreamPair pair(kind, 4096);
        const std::string some(4096, 'x');
        for (;;) {
            if (send_from(*pair.a, some) >= 0) continue;
            REQUIRE(errno == EAGAIN);
            if (pair.a->output_wait() != Stream::Wait::now) break;
        }
        pair.b->close();
        for (;;) {
            const ssize_t result = send_from(*pair.a, some);
            if (result < 0 && errno != EAGAIN) break;
            if (result < 0) wait_for(*pair.a, pair.a->output_wait());
        }
        SUCCEED("it could not");
    }
}

TEST_CASE("closed streams leave no descriptor and no memory") {
    const std::size_t before = open_descriptors();
    StreamPair pair(StreamKind::shared, 1 << 16);
    CHECK(pair.use.bytes == 2 * (4096 + 2 * (1 << 16)));
    pair.a->close();
    pair.b->close();
    CHECK(pair.use.bytes == 0);
    CHECK(open_descriptors() == before);
}

TEST_CASE("the limit on shared memory holds at both ends") {
    SharedMemoryUse use{0, segment_bytes};
    const UnixPair sockets;
    std::string reason;
    const auto a = SharedStream::dialled(sockets.a, loopback_endpoint(), ring_bytes, use, reason);
    REQUIRE(a != nullptr);
    const auto b = SharedStream::accepted(sockets.b, use);
    CHECK(b->open(reason) == Stream::Opening::failed);
    CHECK(reason == "the limit on shared memory is reached");
    const UnixPair others;
    CHECK(SharedStream::dialled(others.a, loopback_endpoint(), ring_bytes, use, reason) == nullptr);
    ::close(others.b);
}

TEST_CASE("a greeting that is not exactly right is refused, and leaves no descriptor") {
    struct Row {
        const char* name;
        std::vector<int> files;
        HandHello hello;
    };
    int pipes[2];
    REQUIRE(::pipe(pipes) == 0);
    const int good = memory_file(segment_bytes, size_seals);
    std::vector<Row> rows;
    rows.push_back({"no descriptor", {}, {}});
    rows.push_back({"two descriptors", {good, good}, {}});
    rows.push_back({"more descriptors than are heard", std::vector<int>(12, good), {}});
    rows.push_back({"a pipe", {pipes[0]}, {}});
    rows.push_back({"a file on a disk", {::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)}, {}});
    rows.push_back({"a directory", {::open("/", O_RDONLY | O_CLOEXEC)}, {}});
    rows.push_back({"memory that may shrink", {memory_file(segment_bytes, F_SEAL_GROW)}, {}});
    rows.push_back({"memory without seals", {memory_file(segment_bytes, 0)}, {}});
    rows.push_back({"memory that is too small", {memory_file(segment_bytes - 4096, size_seals)}, {}});
    rows.push_back({"memory that is too large", {memory_file(segment_bytes + 4096, size_seals)}, {}});
    rows.push_back({"memory that cannot be written", {memory_file(segment_bytes, size_seals | F_SEAL_WRITE)}, {}});
    HandHello hello;
    hello.magic[0] = 'q';
    rows.push_back({"another protocol", {good}, hello});
    for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{2048}, std::uint64_t{5000}, std::uint64_t{1} << 30,
                                     std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
        hello = {};
        hello.ring = size;
        rows.push_back({"a size that is not allowed", {good}, hello});
    }
    for (const Row& row : rows) {
        INFO(row.name << " " << row.hello.ring);
        const std::size_t before = open_descriptors();
        SharedMemoryUse use{0, std::uint64_t{1} << 40};
        UnixPair sockets;
        auto victim = SharedStream::accepted(sockets.b, use);
        pass(sockets.a, &row.hello, sizeof row.hello, row.files);
        std::string reason;
        CHECK(victim->open(reason) == Stream::Opening::failed);
        CHECK_FALSE(reason.empty());
        victim.reset();
        ::close(sockets.a);
        CHECK(open_descriptors() == before);
        CHECK(use.bytes == 0);
    }
    for (const Row& row : rows) {
        for (const int file : row.files) {
            if (file != good) ::close(file);
        }
    }
    ::close(good);
    ::close(pipes[1]);
}

TEST_CASE("an end without the token, one that leaves, and one that passes more are refused") {
    std::string reason;
    {
        Liar liar;
        const HandToken wrong;
        pass(liar.sockets.a, &wrong, sizeof wrong, {});
        CHECK(liar.victim->open(reason) == Stream::Opening::failed);
        CHECK(reason == "it does not have the token of the shared memory");
    }
    {
        Liar liar;
        ::shutdown(liar.sockets.a, SHUT_WR);
        CHECK(liar.victim->open(reason) == Stream::Opening::failed);
    }
    {
        Liar liar;
        const std::size_t before = open_descriptors();
        HandToken confirmation;
        std::memcpy(confirmation.token, liar.base + 16, 16);
        pass(liar.sockets.a, &confirmation, sizeof confirmation, {0});
        CHECK(liar.victim->open(reason) == Stream::Opening::failed);
        CHECK(open_descriptors() == before);
    }
    // The acceptor lies to the dialler.
    SharedMemoryUse use{0, std::uint64_t{1} << 30};
    UnixPair sockets;
    const auto dialler = SharedStream::dialled(sockets.a, loopback_endpoint(), ring_bytes, use, reason);
    REQUIRE(dialler != nullptr);
    const HandToken wrong;
    pass(sockets.b, &wrong, sizeof wrong, {});
    CHECK(dialler->open(reason) == Stream::Opening::failed);
    ::close(sockets.b);
}

TEST_CASE("positions that are out of range end the stream") {
    std::vector<std::uint8_t> memory(100'000);
    for (const std::uint64_t lie : {std::uint64_t{ring_bytes + 1}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
        Liar liar;
        liar.confirm();
        INFO("written " << lie);
        liar.ring(0).written.store(lie);
        CHECK(receive_into(*liar.victim, memory) == -1);
        CHECK(errno == EPROTO);
        CHECK(liar.victim->input_wait() == Stream::Wait::now);
    }
    for (const std::uint64_t lie : {std::uint64_t{ring_bytes + 1}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
        Liar liar;
        liar.confirm();
        INFO("read " << lie);
        REQUIRE(send_from(*liar.victim, std::string(ring_bytes, 'x')) == ring_bytes);
        liar.ring(1).read.store(lie);
        CHECK(send_from(*liar.victim, "more") == -1);
        CHECK(errno == EPROTO);
        CHECK(liar.victim->output_wait() == Stream::Wait::now);
    }
    {
        Liar liar;  // goes back after it was read
        liar.confirm();
        liar.ring(0).written.store(1000);
        CHECK(receive_into(*liar.victim, memory) == 1000);
        liar.ring(0).written.store(999);
        CHECK(receive_into(*liar.victim, memory) == -1);
        CHECK(errno == EPROTO);
    }
}

TEST_CASE("whatever an end writes into the headers at any time, the other one stays within its memory") {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        Liar liar;
        liar.confirm();
        std::atomic<bool> stop{false};
        std::thread storm([&] {
            core::Random random(seed);
            while (!stop.load()) {
                RingHeader& ring = liar.ring(random.below(2));
                const std::uint64_t value = random.below(3) == 0 ? random.next() : random.below(2 * ring_bytes);
                switch (random.below(4)) {
                case 0: ring.written.store(value); break;
                case 1: ring.read.store(value); break;
                case 2: ring.reader_sleeps.store(1); break;
                default: ring.writer_sleeps.store(1); break;
                }
            }
        });
        // Borders that show a byte too many.
        std::vector<std::uint8_t> memory(3000, 0xAB);
        for (int i = 0; i < 300; ++i) {
            const iovec part{memory.data() + 1000, 1000};
            if (liar.victim->receive({&part, 1}) > 1000) FAIL("more than there is room for");
            if (liar.victim->send({&part, 1}, false) > 1000) FAIL("more than was given");
            static_cast<void>(liar.victim->input_wait());
            static_cast<void>(liar.victim->output_wait());
            liar.victim->woken();
        }
        stop = true;
        storm.join();
        CHECK(std::count(memory.begin(), memory.begin() + 1000, 0xAB) == 1000);
        CHECK(std::count(memory.end() - 1000, memory.end(), 0xAB) == 1000);
    }
}

TEST_CASE("a process that is killed at any moment is noticed, and nothing of it remains") {
    const std::size_t before = open_descriptors();
    SharedMemoryUse use{0, std::uint64_t{1} << 30};
    core::Random random(7);
    for (int round = 0; round < 150; ++round) {
        INFO("round " << round);
        const UnixPair sockets;
        const std::uint64_t kill_after = random.below(4) == 0 ? random.below(100) : random.below(400'000);
        const bool dials = random.below(2) == 0;
        const std::uint64_t seed = random.next();
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            ::close(sockets.a);
            SharedMemoryUse own{0, std::uint64_t{1} << 30};
            std::string reason;
            const auto stream = dials ? SharedStream::dialled(sockets.b, loopback_endpoint(), 8192, own, reason)
                                      : SharedStream::accepted(sockets.b, own);
            while (stream->open(reason) == Stream::Opening::waiting) {
                pollfd one{sockets.b, POLLIN, 0};
                ::poll(&one, 1, 60'000);
            }
            try {
                End(*stream, seed, std::uint64_t{1} << 40).run();
            } catch (...) {
            }
            ::_exit(0);
        }
        ::close(sockets.b);
        std::string reason;
        auto stream = dials ? SharedStream::accepted(sockets.a, use)
                            : SharedStream::dialled(sockets.a, loopback_endpoint(), 8192, use, reason);
        REQUIRE(stream != nullptr);
        REQUIRE(finish_opening(*stream, reason) == Stream::Opening::open);
        End end(*stream, seed + 1, std::uint64_t{1} << 40);
        bool killed = false;
        for (;;) {
            if (!killed && end.received() >= kill_after) {
                killed = true;
                ::kill(child, SIGKILL);
            }
            try {
                // Bytes that arrive after the death are checked too. The end of the input is thrown.
                bool moved = end.receive();
                if (!killed) moved = end.send() || moved;
                if (moved) continue;
                wait_for(*stream, stream->input_wait());
            } catch (const std::runtime_error& over) {
                REQUIRE(std::string(over.what()) != "another byte");
                break;
            }
        }
        REQUIRE(killed);
        REQUIRE(::waitpid(child, nullptr, 0) == child);
        stream.reset();
        REQUIRE(use.bytes == 0);
        REQUIRE(open_descriptors() == before);
    }
    std::ifstream maps("/proc/self/maps");
    const std::string text{std::istreambuf_iterator<char>(maps), {}};
    CHECK(text.find("pccl-link") == std::string::npos);
}
