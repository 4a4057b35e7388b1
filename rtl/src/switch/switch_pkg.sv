// The types that the stages of the aggregation switch exchange (docs/explanation/hardware-switch.md).
package switch_pkg;

  localparam logic [15:0] RoceType      = 16'h8915;               // of v1
  localparam logic [15:0] IpType        = 16'h0800;               // of v2: IPv4, and UDP to this port
  localparam logic [15:0] RocePort      = 16'd4791;
  localparam logic [15:0] TagType       = 16'h8100;               // of a VLAN
  localparam logic [15:0] OuterTagType  = 16'h88a8;
  localparam logic [47:0] SwitchAddress = 48'h024e46000001;  // of frames that the switch makes (wire/roce_notice.h)

  // RoCE opcodes of the reliable connection that are folded.
  localparam logic [7:0] WriteFirst         = 8'h06;
  localparam logic [7:0] WriteMiddle        = 8'h07;
  localparam logic [7:0] WriteLast          = 8'h08;
  localparam logic [7:0] WriteLastImmediate = 8'h09;

  localparam int unsigned PortsMax          = 16;
  localparam int unsigned ExceptionsMax     = 4;
  localparam int unsigned MessagePacketsMax = 128;
  localparam int unsigned Columns           = 4;  // messages of one worker on their way
  localparam int unsigned FrameBytesMax     = 1526;  // 1518 and two tags, no FCS, as in switch/ethernet/headers.h
  localparam int unsigned FrameBeatsMax     = 191;

  // A beat of a frame: byte 0 of the frame is the lowest of its first beat, every beat but the last is full.
  typedef struct packed {
    logic        error;  // with the last: the frame is damaged, and is to leave so
    logic        last;
    logic [2:0]  extra;  // of the last: valid bytes less one
    logic [63:0] data;
  } beat_t;

  // Between `extra` and the marks of a stream's valid bytes.
  function automatic logic [2:0] extra_of(logic [7:0] keep);
    extra_of = '0;
    for (int unsigned i = 1; i < 8; i++) if (keep[i]) extra_of = 3'(i);
  endfunction

  function automatic logic [7:0] keep_of(logic [2:0] extra);
    return 8'((9'd2 << extra) - 9'd1);
  endfunction

  // The types of Ethernet that a beat's data would have in bytes 4 and 5, the higher bit, and 0 and 1. They are compared
  // where the beat comes from its MAC: behind the crossing to the switch's clock the comparisons would lie in the longest
  // paths.
  typedef struct packed {
    logic [1:0] is_tag, is_ip, is_roce;
  } types_t;

  // A beat's news about its frame (frame_marker): 3 bits, which fill the width of the Port FIFO's block RAMs.
  typedef enum logic [2:0] {
    MarkNone,
    MarkTag,           // a VLAN tag
    MarkLater,         // Write Middle, Last or with Immediate: the next beat holds its queue pair, and decides
    MarkIp,            // IPv4: RoCE v2, if no later mark says otherwise
    // The highest bit: this decides about it.
    MarkOther = 3'd4,  // it is not folded
    MarkRunt,          // shorter than its tags
    MarkOvertagged,    // more than two tags
    MarkFirst          // a Write First with our aggregation header
  } mark_e;

  // AGG_MODE and AGG_PORT_CFG, taken when an epoch of a job begins, and jobs that have their own.
  typedef struct packed {
    logic                is_used;
    logic                is_float;
    logic [15:0]         job;
    logic [PortsMax-1:0] ports;
  } exception_t;

  typedef struct packed {
    logic                           is_float;   // numbers without a stated format: fp32, else int32
    logic [PortsMax-1:0]            ports;      // that fold
    exception_t [ExceptionsMax-1:0] exceptions;
    logic [31:0]                    age_limit;  // in 1024 cycles: how long a packet waits for those of other ports
  } config_t;

  // The outcome of a RoCE frame: the names, the order and the numbers of the software's RoceVerdict
  // (switch/protocols/roce/roce_job.h).
  typedef enum logic [4:0] {
    VerdictForwarded, VerdictKept, VerdictFolded, VerdictAnswered, VerdictWaiting,  // good
    VerdictMalformed, VerdictIcrc, VerdictHeader, VerdictEpoch, VerdictRank, VerdictSpoofed, VerdictOrder,
    VerdictMismatch, VerdictPsn, VerdictShape, VerdictBlock, VerdictBusy, VerdictStale, VerdictJobs, VerdictRoom
  } verdict_e;

  // Formats of the aggregation header that are folded here (numbers/format.h).
  localparam logic [3:0] FormatNone  = 4'd0;  // as AGG_MODE says
  localparam logic [3:0] FormatFp32  = 4'd1;
  localparam logic [3:0] FormatFp16  = 4'd2;
  localparam logic [3:0] FormatBf16  = 4'd3;
  localparam logic [3:0] FormatInt32 = 4'd4;
  localparam logic [3:0] FormatBfp   = 4'd5;

  // The aggregation header of a Write First, its numbers turned to little-endian (wire/aggregation_header.h).
  typedef struct packed {
    logic [31:0] length_bytes;
    logic [31:0] message;
    logic [7:0]  mantissa;
    logic [7:0]  block;
    logic [15:0] rank;
    logic [15:0] epoch;
    logic [15:0] job;
    logic [7:0]  flags;
    logic [3:0]  format;
    logic [3:0]  version;
  } aggregation_header_t;

  // Addresses as 48-bit numbers: the first byte on the wire is the highest.
  typedef struct packed {
    logic [47:0] to;
    logic [47:0] from;
  } addresses_t;

  // Decoder Information: what DEC_FSM found in a frame that may be folded. The frame itself is whole in the Proc. FIFO.
  typedef struct packed {
    addresses_t          addresses;
    logic [255:0]        gids;           // SGID and DGID, as they lie; of v2 the IPv4 addresses, in 64 bits of them
    logic                is_v2;          // of RoCE
    logic                has_tag;        // one VLAN tag: everything behind it lies four bytes later
    logic [7:0]          opcode;
    logic [23:0]         queue_pair;
    logic [23:0]         psn;
    logic [31:0]         reth_length;    // of a Write First
    aggregation_header_t aggregation;    // of a Write First
    logic [10:0]         payload_bytes;  // behind the transport's headers, as the network header says; no pad
    logic                is_malformed;   // lengths that contradict each other, or a damaged frame
    logic                icrc_is_right;
    logic                has_bad_block;  // if it is block floating point: an exponent that no encoder writes
    logic                is_first;
  } frame_info_t;

  // A connection that a port's worker folds over: what the Frame Analyzer matches later packets with.
  typedef struct packed {
    logic        is_bound;
    logic        is_v2;
    logic [23:0] queue_pair;
    logic [47:0] to;
  } connection_t;

  // PROC_FSM's action on a frame that may be folded, after the Aggregation Frame Handler has judged it.
  typedef enum logic [1:0] {
    RouteForward,  // to its destination, as it is
    RouteFold,     // to the Aggregation Frame Handler
    RouteDrop      // nowhere
  } route_e;

  // Numbers of more bytes than one, as they lie in a beat: the first is the highest.
  function automatic logic [15:0] number_of_2(logic [15:0] lying);
    return {lying[7:0], lying[15:8]};
  endfunction

  function automatic types_t types_of(logic [63:0] data);
    for (int unsigned i = 0; i < 2; i++) begin
      types_of.is_tag[i]  = number_of_2(data[32*i +: 16]) inside {TagType, OuterTagType};
      types_of.is_ip[i]   = number_of_2(data[32*i +: 16]) == IpType;
      types_of.is_roce[i] = number_of_2(data[32*i +: 16]) == RoceType;
    end
  endfunction

  function automatic logic [31:0] number_of_4(logic [31:0] lying);
    return {number_of_2(lying[15:0]), number_of_2(lying[31:16])};
  endfunction

  function automatic logic [47:0] address_of(logic [47:0] lying);
    return {number_of_4(lying[31:0]), number_of_2(lying[47:32])};
  endfunction

  function automatic logic [63:0] lying_of(logic [63:0] number);
    return {number_of_4(number[31:0]), number_of_4(number[63:32])};
  endfunction

  // DEC_FSM's decision about a frame. None of it: it goes on at once.
  typedef struct packed {
    logic is_candidate;   // it may be folded
    logic is_first;       // a Write First, if so
    logic is_v2;
    logic has_tag;
    logic is_runt;        // shorter than its tags: it ends here
    logic is_overtagged;  // more than two tags: it ends here
    logic gives_way;      // it may not wait any longer: it ends here
  } fate_t;

  // The events of a Frame Analyzer, for the counters.
  typedef struct packed {
    logic forwarded;   // to one port
    logic flooded;
    logic filtered;    // its destination is at its own port
    logic runt;
    logic overtagged;
    logic gave_way;    // a frame that waited for a judgement, to others behind it
  } parsed_t;

  // The frames that left at a port, for the counters.
  typedef struct packed {
    logic        ended;
    logic [10:0] bytes;   // of the frame that ended
    logic        sum;     // what it was, if not forwarded
    logic        notice;
    logic        pause;
  } departure_t;

  // The events of a Port Analyzer for a frame, for the counters.
  typedef struct packed {
    logic        ended;
    logic [10:0] bytes;       // of the frame that ended
    logic        damaged;     // the MAC, or too long
    logic        no_room;     // this one and the others end here
    logic        runt;        // shorter than its Ethernet header
    logic        bad_source;  // from a group address, or from none
    logic        oversize;
    logic        filtered;    // for the bridge itself
  } arrival_t;

endpackage
