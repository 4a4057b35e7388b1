// DEC_FSM of the Frame Analyzer (allreduce-switch, IV-C, Table VI): decides about each frame as early as its header
// allows, while the frame passes. Its beats are marked by their headers (frame_marker).
//
//   not RoCE                             second beat, third if tagged   goes on
//   IPv4, not UDP                        third, fourth if tagged        goes on
//   another opcode                       seventh                        goes on
//   Write Middle, Last, with Immediate   eighth                         may be folded if its queue pair is
//   Write First                          twelfth                        may be folded if its aggregation header is ours
//
// (The last three: one beat later behind a tag, and one earlier in v2 with or without a tag. Other UDP, fragments and
// IPv4 with options go on where v2 has the queue pair.) The knowledge about a connection begins with its Write First:
// while one of this port is not judged, later packets wait for it, in the beat that decides; but not where other frames
// would be lost for it.
module frame_decoder
  import switch_pkg::*;
#(
  parameter int unsigned Jobs = 1
) (
  input  logic                   clk_i,
  input  logic                   rst_ni,

  output logic                   ready_o,        // beside other reasons to wait
  input  logic                   take_i,         // the beat is taken
  input  beat_t                  beat_i,
  input  mark_e                  mark_i,
  input  logic                   ends_here_i,    // goes nowhere
  input  logic                   first_waits_i,  // a Write First is not judged yet
  input  logic                   is_crowded_i,   // nothing may wait
  input  connection_t [Jobs-1:0] connections_i,

  // With the beat that decides: once a frame.
  output logic                   decides_o,
  output fate_t                  fate_o,
  output logic                   first_comes_o   // a Write First that may be folded
);

  logic            begins_q, decided_q, has_tag_q, is_v2_q;
  // The beat that decides about a later packet, which may have to wait for a Write First.
  logic            is_later_q, is_later;
  logic [47:0]     to_q;
  logic [7:0]      high_q;      // the last byte of the beat before
  logic [23:0]     plain_pair, turned_pair;
  logic [Jobs-1:0] is_to_q;     // the frame goes where this job's connection goes
  logic            is_folded, decides;
  logic            unused_parts;

  // The frame's queue pair, without a tag and four bytes later, or in v2 the other way round: both are compared before
  // it is chosen between them.
  assign plain_pair   = {beat_i.data[31:24], beat_i.data[39:32], beat_i.data[47:40]};
  assign turned_pair  = {high_q, beat_i.data[7:0], beat_i.data[15:8]};
  assign unused_parts = ^{beat_i.error, beat_i.extra, beat_i.data[55:48], beat_i.data[23:16]};

  always_comb begin
    is_folded = 1'b0;
    for (int unsigned job = 0; job < Jobs; job++) begin
      is_folded |= is_to_q[job] && (is_v2_q ^ has_tag_q ? connections_i[job].queue_pair == turned_pair
                                                        : connections_i[job].queue_pair == plain_pair);
    end
  end

  assign is_later = is_later_q && mark_i != MarkOther;
  assign decides = beat_i.last || ends_here_i || is_later_q ||
                   mark_i inside {MarkOther, MarkRunt, MarkOvertagged, MarkFirst};

  always_comb begin
    fate_o               = '{is_v2: is_v2_q, has_tag: has_tag_q, default: 1'b0};
    fate_o.is_candidate  = is_later ? is_folded && !beat_i.last && !first_waits_i : mark_i == MarkFirst;
    fate_o.is_first      = mark_i == MarkFirst;
    fate_o.is_runt       = mark_i == MarkRunt;
    fate_o.is_overtagged = mark_i == MarkOvertagged;
    fate_o.gives_way     = is_later && first_waits_i;
  end

  assign decides_o     = take_i && decides && !decided_q;
  assign first_comes_o = take_i && mark_i == MarkFirst && !decided_q;
  assign ready_o       = !(is_later && first_waits_i && !is_crowded_i);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      begins_q   <= 1'b1;
      decided_q  <= 1'b0;
      has_tag_q  <= 1'b0;
      is_v2_q    <= 1'b0;
      is_later_q <= 1'b0;
    end else if (take_i) begin
      begins_q   <= beat_i.last;
      decided_q  <= !beat_i.last && (decided_q || decides);
      has_tag_q  <= !beat_i.last && (has_tag_q || mark_i == MarkTag);
      is_v2_q    <= !beat_i.last && (is_v2_q || mark_i == MarkIp);
      is_later_q <= !beat_i.last && mark_i == MarkLater && !decided_q;
    end
  end

  // Addresses and versions are compared a cycle before, as they came with the first beats. It is soon enough for a
  // connection that a Write First has just begun: later packets are decided about two cycles after its judgement.
  always_ff @(posedge clk_i) begin
    for (int unsigned job = 0; job < Jobs; job++) begin
      is_to_q[job] <= connections_i[job].is_bound && connections_i[job].to == to_q &&
                      connections_i[job].is_v2 == is_v2_q;
    end
    if (take_i) begin
      high_q <= beat_i.data[63:56];
      if (begins_q) to_q <= address_of(beat_i.data[47:0]);
    end
  end

endmodule
