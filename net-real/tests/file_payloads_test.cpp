// Payload in buffers that are backed by a file: the I/O thread keeps working while the disk does not answer.
#include "net-real/event_loop.hpp"

#include "core/numeric/kernels.hpp"
#include "core/wire/frame.hpp"
#include "net-real/tests/quiet_client.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <condition_variable>
#include <cstring>
#include <fcntl.h>
#include <future>
#include <linux/userfaultfd.h>
#include <mutex>
#include <netinet/in.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

using namespace pccl;
using namespace pccl::real;

namespace {

constexpr std::size_t bytes = 1u << 20;
constexpr core::BufferId file = 1, plain = 2;  // `plain` is the application's first buffer
constexpr std::size_t plain_bytes = 64u << 20;

// Memory whose first access waits until answer(), like that of a file on a stalled disk. A system call that accesses it
// fails.
class StalledMemory {
public:
    StalledMemory() {
        descriptor_ = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY));
        if (descriptor_ < 0) {
            WARN("skipped: this system has no userfaultfd for us");
            return;
        }
        uffdio_api api{};
        api.api = UFFD_API;
        REQUIRE(::ioctl(descriptor_, UFFDIO_API, &api) == 0);
        void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(memory != MAP_FAILED);
        data = static_cast<std::uint8_t*>(memory);
        ::madvise(memory, bytes, MADV_NOHUGEPAGE);
        uffdio_register all{};
        all.range = {reinterpret_cast<std::uint64_t>(data), bytes};
        all.mode = UFFDIO_REGISTER_MODE_MISSING;
        REQUIRE(::ioctl(descriptor_, UFFDIO_REGISTER, &all) == 0);
    }
    ~StalledMemory() { release(); }
    // After this no access waits any more.
    void release() {
        if (descriptor_ >= 0) ::close(descriptor_);
        descriptor_ = -1;
    }
    bool is_there() const { return descriptor_ >= 0; }  // false if the system does not allow it
    // Waits until some thread waits for the memory.
    void await_touch() {
        uffd_msg message{};
        REQUIRE(::read(descriptor_, &message, sizeof message) == sizeof message);
        REQUIRE(message.event == UFFD_EVENT_PAGEFAULT);
    }
    void answer(const std::vector<std::uint8_t>& content) {
        uffdio_copy copy{};
        copy.dst = reinterpret_cast<std::uint64_t>(data);
        copy.src = reinterpret_cast<std::uint64_t>(content.data());
        copy.len = bytes;
        REQUIRE(::ioctl(descriptor_, UFFDIO_COPY, &copy) == 0);
    }

    std::uint8_t* data = nullptr;  // the loop unmaps it

private:
    int descriptor_ = -1;
};

// Receives payload into the file and hashes it. Sends the file at the first control frame. At the next one it cancels
// the send and frees the file.
class Filer : public QuietClient {
public:
    core::Status handle(core::Instant, const core::Event& event, core::Effects& out) override {
        const core::BufferRef all{file, 0, bytes};
        if (const auto* bulk = std::get_if<core::BulkArrived>(&event)) {
            out.push_back(core::ReceivePayload{bulk->link, all});
        } else if (const auto* landed = std::get_if<core::PayloadLanded>(&event)) {
            core::Compute hash;
            hash.id = 1;
            hash.kind = core::Compute::Kind::hash;
            hash.a = all;
            out.push_back(hash);
            say(landed->verdict == core::PayloadLanded::Verdict::landed ? "landed" : "not landed");
        } else if (const auto* done = std::get_if<core::ComputeDone>(&event); done != nullptr && done->id > 1) {
            say(done->id == 100 ? "computed" : "computed from the file");
        } else if (done != nullptr) {
            {
                const std::lock_guard lock(mutex_);
                hash_ = done->hash;
            }
            say("hashed");
        } else if (const auto* control = std::get_if<core::ControlArrived>(&event);
                   control != nullptr && control->body.front() == 'h') {
            // More computes on the file than there are threads, and then one that does not concern the file.
            for (std::uint64_t i = 0; i < 8; ++i) out.push_back(hash_of(2 + i, {file, i * 4096, 4096}));
            out.push_back(hash_of(100, {plain, 0, plain_bytes}));
        } else if (control != nullptr && !asked_) {
            asked_ = true;
            core::SendPayload send;
            send.link = control->link;
            send.header.op = 7;
            send.header.length = bytes;
            send.source = all;
            out.push_back(send);
            say("sends");
        } else if (control != nullptr) {
            out.push_back(core::CancelSend{control->link});
            out.push_back(core::FreeBuffer{file});
        } else if (const auto* sent = std::get_if<core::PayloadSent>(&event)) {
            say(sent->cancelled ? "cancelled" : "sent");
        } else if (const auto* closed = std::get_if<core::LinkClosed>(&event)) {
            say("closed: " + closed->reason);
        }
        return core::Status::ok;
    }

    // The next recorded event; empty: none came for 60 s.
    std::string next() {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, std::chrono::seconds(60), [&] { return !said_.empty(); })) return {};
        std::string first = std::move(said_.front());
        said_.erase(said_.begin());
        return first;
    }
    core::Hash128 hash() {
        const std::lock_guard lock(mutex_);
        return hash_;
    }

private:
    void say(std::string what) {
        const std::lock_guard lock(mutex_);
        said_.push_back(std::move(what));
        changed_.notify_all();
    }

    static core::Compute hash_of(std::uint64_t id, const core::BufferRef& what) {
        core::Compute hash;
        hash.id = id;
        hash.kind = core::Compute::Kind::hash;
        hash.a = what;
        return hash;
    }

    bool asked_ = false;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::string> said_;
    core::Hash128 hash_;
};

// A loop whose machine has one file buffer, which is `memory`, and a client that is connected to it.
class Ends {
public:
    explicit Ends(StalledMemory& memory) : memory_(memory) {
        loop.buffers().adopt_file(file, memory.data, bytes);
        REQUIRE(loop.buffers().register_buffer(plain_.data(), plain_bytes) == plain);
        ListenRequest request;
        request.address = core::Endpoint{};
        std::string error;
        REQUIRE(loop.listen(request, error));
        REQUIRE(loop.start(error));
        descriptor_ = ::socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(loop.port());
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        REQUIRE(::connect(descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    }
    ~Ends() {
        memory_.release();
        ::close(descriptor_);
        loop.request_stop();
        loop.join();
    }
    void send(const void* data, std::size_t length) {
        REQUIRE(::send(descriptor_, data, length, MSG_NOSIGNAL) == static_cast<ssize_t>(length));
    }
    void ask(std::uint8_t what = 'q') {
        std::string frame;
        core::wire::append_control(frame, std::array<std::uint8_t, 1>{what});
        send(frame.data(), frame.size());
    }
    void receive(void* data, std::size_t length) {
        REQUIRE(::recv(descriptor_, data, length, MSG_WAITALL) == static_cast<ssize_t>(length));
    }
    // Whether the loop's thread still does other work.
    bool goes_on() {
        std::promise<void> ran;
        loop.post([&ran] { ran.set_value(); });
        return ran.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready;
    }

    Filer machine;
    EventLoop loop{LoopSettings{}, machine};

private:
    StalledMemory& memory_;
    std::vector<std::uint8_t> plain_ = std::vector<std::uint8_t>(plain_bytes);
    int descriptor_ = -1;
};

std::vector<std::uint8_t> content() {
    std::vector<std::uint8_t> all(bytes);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
    return all;
}

}  // namespace

TEST_CASE("payload for a file lands while its disk does not answer, and is there when it does") {
    StalledMemory memory;
    if (!memory.is_there()) return;
    Ends ends(memory);
    const std::vector<std::uint8_t> payload = content();
    core::wire::BulkHeader header;
    header.op = 7;
    header.length = bytes;
    const auto head = core::wire::encode_bulk(header);
    const auto trailer = core::wire::encode_trailer({core::numeric::checksum64(payload.data(), bytes), false});
    ends.send(head.data(), head.size());
    ends.send(payload.data(), payload.size());
    ends.send(trailer.data(), trailer.size());
    REQUIRE(ends.machine.next() == "landed");
    memory.await_touch();
    CHECK(ends.goes_on());
    memory.answer(std::vector<std::uint8_t>(bytes));
    REQUIRE(ends.machine.next() == "hashed");
    CHECK(ends.machine.hash() == core::numeric::hash128(payload.data(), bytes));
    CHECK(std::memcmp(memory.data, payload.data(), bytes) == 0);
}

TEST_CASE("a file is sent when its disk has answered, and other work goes on until then") {
    StalledMemory memory;
    if (!memory.is_there()) return;
    Ends ends(memory);
    ends.ask();
    REQUIRE(ends.machine.next() == "sends");
    memory.await_touch();
    CHECK(ends.goes_on());
    const std::vector<std::uint8_t> payload = content();
    memory.answer(payload);
    core::wire::BulkHeader header;
    header.op = 7;
    header.length = bytes;
    auto head = core::wire::encode_bulk(header);
    const auto expected = head;
    ends.receive(head.data(), head.size());
    CHECK(head == expected);
    std::vector<std::uint8_t> received(bytes);
    ends.receive(received.data(), received.size());
    CHECK(received == payload);
    CHECK(ends.machine.next() == "sent");
}

TEST_CASE("sending is given up, and the file too, while the disk does not answer") {
    StalledMemory memory;
    if (!memory.is_there()) return;
    Ends ends(memory);
    ends.ask();
    REQUIRE(ends.machine.next() == "sends");
    memory.await_touch();
    ends.ask();
    CHECK(ends.machine.next() == "cancelled");
    CHECK(ends.goes_on());
    memory.answer(content());
}

TEST_CASE("what has nothing to do with a file is computed while its disk does not answer") {
    StalledMemory memory;
    if (!memory.is_there()) return;
    Ends ends(memory);
    ends.ask('h');
    CHECK(ends.machine.next() == "computed");
    memory.answer(content());
    for (int i = 0; i < 8; ++i) CHECK(ends.machine.next() == "computed from the file");
}
