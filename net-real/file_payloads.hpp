// Payload that lands in, or leaves from, a buffer that is backed by a file.
//
// Such memory may wait for a disk at each access, so an I/O thread never touches it. Received payload lands in a
// separate block, and the worker that computes with that range first writes the block to its place. Outgoing payload is
// read into a block by a worker before the link gets it. Everything here is for the I/O thread, except write_to_files()
// and read_from_file().
#pragma once

#include "core/events.hpp"
#include "net-real/buffers.hpp"

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace pccl::real {

using Block = std::unique_ptr<std::uint8_t[]>;

struct FileWrite {
    core::BufferRef place;
    std::uint8_t* target = nullptr;
    Block data;
};
using FileWrites = std::vector<FileWrite>;
void write_to_files(const FileWrites& writes);

struct FileRead {
    core::SendPayload command;
    std::shared_ptr<const void> file;  // keeps it mapped until the read is over, even if the machine frees the buffer
    const std::uint8_t* source = nullptr;
    Block data;
    bool done = false;
};
void read_from_file(FileRead& read);

class FilePayloads {
public:
    explicit FilePayloads(BufferTable& buffers) : buffers_(buffers) {}

    // The block that receives the payload of this link; null: no memory.
    std::uint8_t* begin_landing(core::LinkId link, const core::BufferRef& place);
    // The frame has ended. A payload that is not good is dropped.
    void end_landing(core::LinkId link, bool good);
    bool has_landings() const { return !landing_.empty(); }
    // Moves to `writes` what must be written before a computation reads or writes `range`.
    void take_writes(const core::BufferRef& range, FileWrites& writes);

    // Null: no memory. The read belongs to the link until end_read().
    std::shared_ptr<FileRead> begin_read(const core::SendPayload& command);
    FileRead* reading(core::LinkId link);
    void end_read(core::LinkId link) { reading_.erase(link); }

    void forget_link(core::LinkId link);
    void forget_buffer(core::BufferId buffer);

private:
    BufferTable& buffers_;
    std::unordered_map<core::LinkId, FileWrite> landing_;
    FileWrites unwritten_;  // landed; at most what the machine has requested and not yet hashed
    std::unordered_map<core::LinkId, std::shared_ptr<FileRead>> reading_;
};

}  // namespace pccl::real
