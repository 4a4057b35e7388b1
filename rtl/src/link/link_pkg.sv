// The frame between two neighbours of the ring (docs/reference/nic-link.md). The header is 32 bytes, the first beat of a
// frame; beyond 32 bytes that beat is zeros. Numbers are little-endian but for the Ethernet type.
package link_pkg;

  localparam logic [15:0] EtherType  = 16'hb588;  // 0x88b5 (local experiments) as the bytes lie
  localparam logic [7:0]  KindData   = 8'd1;
  localparam logic [7:0]  KindAck    = 8'd2;

  // The checksum covers the payload and bytes 12 to 27. The last byte comes first in a packed structure.
  typedef struct packed {
    logic [31:0] limit;      // acknowledgement: frames below this number may be sent
    logic [31:0] sequence_;  // data: this frame's number; acknowledgement: the number waited for
    logic [7:0]  beats;      // of payload behind the header
    logic [7:0]  epoch;      // of the ring
    logic [15:0] ring;
    logic [7:0]  flags;      // bit 0: data: ends a chunk; acknowledgement: a later frame came first
    logic [7:0]  kind;
    logic [15:0] ether_type;
  } covered_t;

  typedef struct packed {
    logic [31:0] crc;          // bytes 28 to 31: over the payload's beats, then what is covered
    covered_t    is;
    logic [47:0] source;
    logic [47:0] destination;  // bytes 0 to 5
  } header_t;

  // The addresses of this end and its neighbours. Byte 0 of an address is in the lowest bits.
  typedef struct packed {
    logic [15:0] ring;
    logic [7:0]  epoch;
    logic [47:0] address;
  } identity_t;

  typedef struct packed {
    logic [47:0] right;  // data goes there
    logic [47:0] left;   // acknowledgements go there
  } neighbours_t;

  // An acknowledgement that arrived about sent frames, or that is to be sent about received frames.
  typedef struct packed {
    logic        gap;
    logic [31:0] expected;
    logic [31:0] limit;
  } ack_t;

  // A cycle long each, one a frame.
  typedef struct packed {
    logic acknowledged;
    logic drop_full;
    logic drop_gap;
    logic drop_duplicate;
    logic drop_crc;
    logic drop_length;
    logic drop_foreign;
    logic received;
  } receive_events_t;

  typedef struct packed {
    logic timeout;  // sending again from the oldest, for want of news
    logic paused;   // every cycle in which a frame waits for the neighbour to have room
    logic ack;
    logic resent;
    logic sent;
  } send_events_t;

endpackage
