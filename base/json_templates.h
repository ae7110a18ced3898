// Declares nlohmann's classes as instantiated in json_templates.cpp: without it every file that touches JSON compiles
// copies of them, a third of its time. Included by the precompiled headers.
#pragma once

#include <nlohmann/json.hpp>

#ifndef DRAFTSMITH_JSON_TEMPLATES
#define DRAFTSMITH_JSON_TEMPLATES extern
#endif

DRAFTSMITH_JSON_TEMPLATES template class nlohmann::basic_json<>;
DRAFTSMITH_JSON_TEMPLATES template class nlohmann::basic_json<nlohmann::ordered_map>;
DRAFTSMITH_JSON_TEMPLATES template class nlohmann::detail::serializer<nlohmann::json>;
DRAFTSMITH_JSON_TEMPLATES template class nlohmann::detail::serializer<nlohmann::ordered_json>;
DRAFTSMITH_JSON_TEMPLATES template class nlohmann::detail::json_sax_dom_parser<nlohmann::json>;
DRAFTSMITH_JSON_TEMPLATES template class nlohmann::detail::json_sax_dom_parser<nlohmann::ordered_json>;
DRAFTSMITH_JSON_TEMPLATES template class nlohmann::detail::json_sax_dom_callback_parser<nlohmann::json>;
DRAFTSMITH_JSON_TEMPLATES template class nlohmann::detail::json_sax_dom_callback_parser<nlohmann::ordered_json>;
