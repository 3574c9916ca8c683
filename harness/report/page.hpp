// The parts of the page, embedded from page.html, page.css and page_*.js by cmake/EmbedText.cmake.
#pragma once

namespace pccl::harness::report {

extern const char* const page_html;
extern const char* const page_css;
// Concatenated in this order, these are the script.
extern const char* const page_data_js;
extern const char* const page_draw_js;
extern const char* const page_panel_js;

}  // namespace pccl::harness::report
