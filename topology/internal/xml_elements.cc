#include "topology/internal/xml_elements.h"

#include <expat.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "topology/limits.h"

namespace sluice::topology {
namespace {

struct ParserCloser {
  void operator()(XML_Parser parser) const { XML_ParserFree(parser); }
};
using ParserPtr = std::unique_ptr<XML_ParserStruct, ParserCloser>;

struct ParseState {
  XML_Parser parser = nullptr;
  std::vector<XmlElement> elements;
  std::vector<std::size_t> open;
  ErrorCode code = ErrorCode::kTopologySyntax;
  std::string refusal;

  void refuse(ErrorCode why, std::string text) {
    if (!refusal.empty()) return;
    code = why;
    refusal = std::move(text);
    XML_StopParser(parser, XML_FALSE);
  }
};

void on_start(void* user, const XML_Char* name, const XML_Char** attributes) {
  auto& state = *static_cast<ParseState*>(user);
  if (state.elements.size() >= kXmlElementsMax) {
    return state.refuse(ErrorCode::kTopologyTooLarge, fmt::format("more than {} elements", kXmlElementsMax));
  }
  if (state.open.size() >= kXmlDepthMax) {
    return state.refuse(ErrorCode::kTopologyTooLarge, fmt::format("elements nested deeper than {}", kXmlDepthMax));
  }
  XmlElement element;
  element.name = name;
  element.parent = state.open.empty() ? 0 : state.open.back();
  element.line = static_cast<std::size_t>(XML_GetCurrentLineNumber(state.parser));
  for (std::size_t index = 0; attributes[index] != nullptr; index += 2) {
    if (element.attributes.size() >= kXmlAttributesMax) {
      return state.refuse(ErrorCode::kTopologyTooLarge, fmt::format("<{}> has more than {} attributes", name, kXmlAttributesMax));
    }
    element.attributes.emplace_back(attributes[index], attributes[index + 1]);
  }
  state.open.push_back(state.elements.size());
  state.elements.push_back(std::move(element));
}

void on_end(void* user, const XML_Char* /*name*/) { static_cast<ParseState*>(user)->open.pop_back(); }

void on_text(void* user, const XML_Char* text, int size) {
  auto& state = *static_cast<ParseState*>(user);
  if (!state.open.empty()) state.elements[state.open.back()].text.append(text, static_cast<std::size_t>(size));
}

// hwloc writes <!DOCTYPE topology SYSTEM "hwloc2.dtd">; one with definitions inside belongs to no kind of file.
void on_doctype(void* user, const XML_Char* /*name*/, const XML_Char* /*system*/, const XML_Char* /*public_id*/, int has_internal) {
  if (has_internal != 0) {
    static_cast<ParseState*>(user)->refuse(ErrorCode::kTopologySyntax, "a document type (DOCTYPE) with definitions is not accepted");
  }
}

}  // namespace

std::string_view XmlElement::attribute(std::string_view wanted) const {
  const auto found = std::ranges::find(attributes, wanted, &std::pair<std::string, std::string>::first);
  return found == attributes.end() ? std::string_view{} : std::string_view{found->second};
}

bool XmlElement::has(std::string_view wanted) const {
  return std::ranges::find(attributes, wanted, &std::pair<std::string, std::string>::first) != attributes.end();
}

Result<std::vector<XmlElement>> parse_xml_elements(std::string_view text, const std::string& name) {
  if (text.size() > kFileBytesMax) {
    return fail(ErrorCode::kTopologyTooLarge, "read " + name, fmt::format("{} bytes, at most {}", text.size(), kFileBytesMax));
  }
  // The files carry a licence comment or blank lines before the root; an XML declaration after those is refused by the parser itself.
  const ParserPtr parser(XML_ParserCreate(nullptr));
  if (parser == nullptr) return fail(ErrorCode::kInternal, "read " + name, "no XML parser");
  ParseState state;
  state.parser = parser.get();
  XML_SetUserData(parser.get(), &state);
  XML_SetElementHandler(parser.get(), on_start, on_end);
  XML_SetCharacterDataHandler(parser.get(), on_text);
  XML_SetStartDoctypeDeclHandler(parser.get(), on_doctype);
  const bool is_parsed = XML_Parse(parser.get(), text.data(), static_cast<int>(text.size()), XML_TRUE) == XML_STATUS_OK;
  if (!is_parsed) {
    const std::string why = state.refusal.empty() ? XML_ErrorString(XML_GetErrorCode(parser.get())) : state.refusal;
    return fail(state.code, "read " + name, fmt::format("line {}: {}", XML_GetCurrentLineNumber(parser.get()), why));
  }
  return std::move(state.elements);
}

}  // namespace sluice::topology
