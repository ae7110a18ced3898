// Declares that json_templates.cpp instantiates nlohmann's classes. Otherwise each file with JSON would compile copies
// of them, which takes a third of its time. The precompiled headers include this file.
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
