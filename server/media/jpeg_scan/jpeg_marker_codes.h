// SPDX-License-Identifier: Apache-2.0
#pragma once

// The second byte of JPEG's markers, behind FF (ITU-T T.81, table B.1).
namespace spdld::media::marker {

inline constexpr unsigned kStuffed = 0x00;  // FF 00: a data byte FF
inline constexpr unsigned kTem = 0x01;
inline constexpr unsigned kSof0 = 0xC0;
inline constexpr unsigned kDht = 0xC4;
inline constexpr unsigned kRst0 = 0xD0;
inline constexpr unsigned kRst7 = 0xD7;
inline constexpr unsigned kSoi = 0xD8;
inline constexpr unsigned kEoi = 0xD9;
inline constexpr unsigned kSos = 0xDA;
inline constexpr unsigned kDqt = 0xDB;
inline constexpr unsigned kDri = 0xDD;
inline constexpr unsigned kApp0 = 0xE0;
inline constexpr unsigned kApp1 = 0xE1;
inline constexpr unsigned kApp14 = 0xEE;
inline constexpr unsigned kApp15 = 0xEF;
inline constexpr unsigned kCom = 0xFE;
inline constexpr unsigned kFill = 0xFF;

}  // namespace spdld::media::marker
