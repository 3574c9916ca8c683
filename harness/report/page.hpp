// The parts of the page, embedded from page.html, page.css and page.js by cmake/EmbedText.cmake.
#pragma once

namespace pccl::harness::report {

extern const char* const page_html;
extern const char* const page_css;
extern const char* const page_js;

}  // namespace pccl::harness::report
