// Payload that lands in, or leaves from, a buffer that a file backs.
//
// Such memory may wait for a disk at each touch, so an I/O thread never touches it. What comes lands in a block beside it,
// and the worker that computes with that range first writes the block to its place. What leaves is read into a block by a
// worker before the link gets it. Everything here is for the I/O thread, but write_to_files() and read_from_file().
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
    std::shared_ptr<const void> file;  // stays mapped until the read is over, whatever the machine frees meanwhile
    const std::uint8_t* source = nullptr;
    Block data;
    bool done = false;
};
void read_from_file(FileRead& read);

class FilePayloads {
public:
    explicit FilePayloads(BufferTable& buffers) : buffers_(buffers) {}

    // Where the payload of this link is to be received; null: no memory.
    std::uint8_t* begin_landing(core::LinkId link, const core::BufferRef& place);
    // Its frame has ended. What is not good is dropped.
    void end_landing(core::LinkId link, bool good);
    bool has_landings() const { return !landing_.empty(); }
    // What has to be written before a computation reads or writes `range`.
    void take_writes(const core::BufferRef& range, FileWrites& writes);

    // Null: no memory. The read is the link's until end_read().
    std::shared_ptr<FileRead> begin_read(const core::SendPayload& command);
    FileRead* reading(core::LinkId link);
    void end_read(core::LinkId link) { reading_.erase(link); }

    void forget_link(core::LinkId link);
    void forget_buffer(core::BufferId buffer);

private:
    BufferTable& buffers_;
    std::unordered_map<core::LinkId, FileWrite> landing_;
    FileWrites unwritten_;  // landed; as many as the machine has asked for and not yet hashed
    std::unordered_map<core::LinkId, std::shared_ptr<FileRead>> reading_;
};

}  // namespace pccl::real
