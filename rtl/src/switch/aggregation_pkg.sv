// The types that the modules of the Aggregation Stage exchange (docs/explanation/hardware-switch.md).
package aggregation_pkg;

  import switch_pkg::*;

  localparam int unsigned JobWidth       = 4;                            // up to 16 jobs
  localparam int unsigned Places         = Columns * MessagePacketsMax;  // of one job
  localparam int unsigned PlaceWidth     = $clog2(Places);
  localparam int unsigned HeaderBeats    = 16;  // kept of a frame: 14 at most, and what its builder must know (meta_t)
  localparam int unsigned PayloadBeats   = 128;
  localparam int unsigned RepeatsMax     = 32;  // frames of a port that came again and wait for their sum
  localparam int unsigned RepeatBits     = $clog2(RepeatsMax);
  localparam int unsigned PacketWords    = 256;  // 4 bytes each
  localparam int unsigned OwnWords       = 5;    // of a Write First: the aggregation header
  localparam logic [3:0]  MetaBeat       = 4'd15;
  localparam int unsigned OneWayBit      = 2;    // of the flags: the upper byte of `rank` is another rank, or the giver
  localparam int unsigned WorkersShift   = 3;    // of v2: their number, in the bits from here on

  // The highest bit is that of 16-bit floats: a switch without them has it constant.
  typedef enum logic [2:0] {FoldInt32, FoldFp32, FoldBfp, FoldFp16 = 3'd4, FoldBf16} fold_e;

  localparam int unsigned RankBits   = $clog2(PortsMax);
  localparam int unsigned ShortBytes = 4;  // in a short packet, in the place of its gradients

  // Which way a message goes: to all, or only to its owner, or from its giver.
  typedef struct packed {
    logic                is_one_way;
    logic                gives;
    logic [RankBits-1:0] other;  // the rank of the owner, or of the giver
  } way_t;

  // Which packets of one port's worker are short: as they come, and as they leave.
  typedef struct packed {
    logic comes;
    logic leaves;
  } shorts_t;

  // The properties of a message that workers must agree on.
  typedef struct packed {
    logic [15:0] last_word;  // its number from 0, the aggregation header's words included
    logic [2:0]  format;     // as in the aggregation header
    logic        says_workers;
    logic        ends_tensor;
    way_t        way;
  } shape_t;

  // Epochs of a job are counted from reset on: what is queued, or lies in a place, may outlive its epoch. Much less than
  // this many begin before all that is old has been swept away.
  localparam int unsigned GenerationWidth = 10;
  typedef logic [GenerationWidth-1:0] generation_t;

  // A packet of a message in its place.
  typedef struct packed {
    logic [JobWidth-1:0]   job;
    generation_t           generation;
    logic [PlaceWidth-1:0] place;
    logic [31:0]           message;
    logic [7:0]            last_word;  // of gradients: its number from 0
    fold_e                 how;
  } packet_t;

  // Where a frame's gradients begin depends on this, on RoCE's version and on a VLAN tag.
  typedef enum logic [1:0] {KindPlain, KindFirst, KindImmediate} kind_e;

  // Beside a kept header.
  typedef struct packed {
    logic        is_short;  // it leaves so
    kind_e       kind;
    logic        is_v2;
    logic        has_tag;
    generation_t generation;
    logic [31:0] message;
  } meta_t;

  // The facts that a handler knows about a Write First from its own connection, for the job that the Job Table has
  // found.
  typedef struct packed {
    logic     is_taken;     // another job's worker writes over this connection
    logic     is_bad;       // lengths or flags
    logic     has_other_rank;
    logic     is_spoofed;
    logic     is_next;      // the message to come; else `verdict` says what it is
    verdict_e verdict;
  } first_facts_t;

  typedef enum logic [1:0] {NoticeWaiting, NoticeMismatch, NoticeUnknown, NoticeWorkers} notice_e;

  typedef struct packed {
    notice_e     kind;
    logic [15:0] job;
    logic [15:0] epoch;
    logic [15:0] rank;
    logic [6:0]  packet;
    logic [31:0] message;
  } notice_t;

  function automatic kind_e kind_of(logic [7:0] opcode);
    unique case (opcode)
      WriteFirst:         return KindFirst;
      WriteLastImmediate: return KindImmediate;
      default:            return KindPlain;
    endcase
  endfunction

  // Headers are 66 bytes, 102 of a Write First, 70 with immediate data, 12 less of v2, and four more with a tag: full
  // beats, and two bytes or six.
  function automatic logic [3:0] header_beats(kind_e kind, logic is_v2, logic has_tag);
    unique case (kind)
      KindFirst:     return is_v2 ? 4'd11 : 4'd12 + 4'(has_tag);
      KindImmediate: return is_v2 ? 4'd7 : 4'd8 + 4'(has_tag);
      default:       return is_v2 ? 4'd6 + 4'(has_tag) : 4'd8;
    endcase
  endfunction

  function automatic logic header_ends_at_six(kind_e kind, logic is_v2, logic has_tag);
    return is_v2 ^ has_tag ^ (kind != KindPlain);
  endfunction

  // By the header's `rank`.
  function automatic way_t way_of(logic is_one_way, logic gives, logic [RankBits-1:0] other);
    return is_one_way ? '{is_one_way: 1'b1, gives: gives, other: other} : '0;
  endfunction

  function automatic logic [15:0] sender_of(logic is_one_way, logic [15:0] rank);
    return {is_one_way ? 8'd0 : rank[15:8], rank[7:0]};
  endfunction

  function automatic shape_t shape_of(logic [31:0] length_bytes, logic [2:0] format, logic [4:0] workers,
                                      logic ends_tensor, way_t way);
    return '{last_word: 16'(length_bytes >> 2) + 16'(OwnWords - 1), format: format, says_workers: workers != '0,
             ends_tensor: ends_tensor, way: way};
  endfunction

  // The last packet of a message with this last word.
  function automatic logic [6:0] last_of(logic [15:0] last_word);
    return 7'(last_word >> 8);
  endfunction

  function automatic logic [7:0] packets_of(logic [15:0] last_word);
    return 8'(last_of(last_word)) + 8'd1;
  endfunction

  // The last word of gradients in a packet of it that is not its first.
  function automatic logic [7:0] last_word_of(logic [15:0] last_word, logic [6:0] packet);
    if (packet == last_of(last_word)) return 8'(last_word);
    return 8'(PacketWords - 1);
  endfunction

  // Whether a packet of it that is not its first has this opcode, and so many words, one more than `last`.
  function automatic logic is_shaped(logic [8:0] last, logic [7:0] opcode, logic [15:0] last_word, logic [6:0] packet,
                                     logic is_short);
    logic is_middle, is_last;
    is_middle = opcode == WriteMiddle && last == (is_short ? '0 : 9'(PacketWords - 1));
    is_last   = (opcode == WriteLast || opcode == WriteLastImmediate) && last == (is_short ? '0 : 9'(8'(last_word)));
    return packet != '0 && (packet == last_of(last_word) ? is_last : is_middle);
  endfunction

  localparam int unsigned AdderStages = 5;  // of fp32_adder, at 200 MHz

  // Block floating point is folded in pairs of elements, eight to a block: so many a cycle, and where blocks lie there.
  localparam int unsigned BfpPairs = 3;

  typedef struct packed {
    logic       is_valid;
    logic [1:0] old;        // pairs of the block that has begun before, the first ones
    logic       begins;     // all others are the first of the next block; else there is no next block
    logic       completes;  // the block that has begun before
    logic       is_last;    // of the payload
  } bfp_step_t;

  // Which bit is set, of one.
  function automatic logic [4:0] index_of(logic [31:0] bits);
    index_of = '0;
    for (int unsigned i = 0; i < 32; i++) if (bits[i]) index_of |= 5'(i);
  endfunction

  // The oldest in a circle of 2^32 is behind by less than a half.
  function automatic logic is_older(logic [31:0] a, logic [31:0] b);
    return 1'((a - b) >> 31);
  endfunction

endpackage
