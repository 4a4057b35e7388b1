// DEC_FSM of the Frame Analyzer (allreduce-switch, IV-C, Table VI): decides about each frame as early as its header
// allows, while the frame passes.
//
//   not RoCE v1                          second beat, third if tagged   goes on
//   another opcode                       seventh                        goes on
//   Write Middle, Last, with Immediate   eighth                         may be folded if its queue pair is
//   Write First                          eleventh                       may be folded if its aggregation header is ours
//
// (One beat later behind a tag.) The knowledge about a connection begins with its Write First: while one of this port
// is not judged, later packets wait for it, in the eighth beat; but not where other frames would be lost for it.
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
  input  logic                   ends_here_i,    // goes nowhere
  input  logic                   first_waits_i,  // a Write First is not judged yet
  input  logic                   is_crowded_i,   // nothing may wait
  input  connection_t [Jobs-1:0] connections_i,

  // With the beat that decides: once a frame.
  output logic                   decides_o,
  output fate_t                  fate_o,
  output logic                   first_comes_o   // a Write First that may be folded
);

  localparam logic [15:0] Magic     = 16'h4e46;
  localparam logic [3:0]  Version   = 4'd1;
  localparam logic [15:0] LengthMin = 16'd52;  // BTH, RETH, aggregation header, ICRC

  function automatic logic is_tag(logic [15:0] ether_type);
    return ether_type == 16'h8100 || ether_type == 16'h88a8;
  endfunction

  logic [3:0]  index_q, index;  // of the beat; and as if there were no tag
  logic        decided_q, has_tag_q, is_first_q, is_longer_q, is_just_long_q, has_pad_q;
  logic        may_wait_q;     // the beat may have to wait for a Write First: the eighth of a later packet
  logic [47:0] to_q;
  logic [31:0] high_q;
  logic [23:0] plain_pair, tagged_pair;
  logic [63:0] data;
  logic [15:0] type_, inner_type, innermost_type, length;
  logic [7:0]  opcode;
  logic        is_roce, is_first, is_ours, is_opening, is_folded, decides;
  logic        unused_parts;

  // With a VLAN tag, all bytes behind the type are four bytes later.
  assign data  = has_tag_q ? {beat_i.data[31:0], high_q} : beat_i.data;
  assign index = index_q - 4'(has_tag_q);

  assign type_          = number_of_2(beat_i.data[47:32]);
  assign inner_type     = number_of_2(beat_i.data[15:0]);
  assign innermost_type = number_of_2(beat_i.data[47:32]);
  assign is_roce        = (index_q == 4'd1 ? type_ : inner_type) == RoceType;
  assign length         = number_of_2(data[31:16]);
  assign opcode         = data[55:48];
  assign is_first       = opcode == WriteFirst;
  assign is_ours        = number_of_2(data[31:16]) == Magic && data[39:36] == Version &&
                          (is_longer_q || (is_just_long_q && !has_pad_q));

  assign is_opening     = is_ours && !beat_i.last;
  assign unused_parts   = ^{beat_i.error, data[63:62], data[59:56], data[47:40], data[35:32], data[15:0]};

  // The frame's queue pair, without a tag and with one: both are compared before it is chosen between them.
  assign plain_pair  = {beat_i.data[31:24], beat_i.data[39:32], beat_i.data[47:40]};
  assign tagged_pair = {high_q[31:24], beat_i.data[7:0], beat_i.data[15:8]};

  always_comb begin
    is_folded = 1'b0;
    for (int unsigned job = 0; job < Jobs; job++) begin
      is_folded |= connections_i[job].is_bound && connections_i[job].to == to_q &&
                   (has_tag_q ? connections_i[job].queue_pair == tagged_pair
                              : connections_i[job].queue_pair == plain_pair);
    end
  end

  always_comb begin
    decides = beat_i.last || ends_here_i;
    fate_o  = '{has_tag: has_tag_q, is_first: is_first_q, default: 1'b0};
    if (!ends_here_i) begin
      if (index_q == 4'd1) begin
        if (!is_roce && !is_tag(type_)) decides = 1'b1;
        fate_o.is_runt = beat_i.last && is_tag(type_);
      end else if (index_q == 4'd2 && has_tag_q) begin
        if (!is_roce) decides = 1'b1;
        fate_o.is_runt     = beat_i.last && beat_i.extra < (is_tag(inner_type) ? 3'd5 : 3'd1);
        fate_o.is_overtagged = is_tag(inner_type) && is_tag(innermost_type) && !fate_o.is_runt;
      end else if (index == 4'd6) begin
        if (!(opcode inside {WriteFirst, WriteMiddle, WriteLast, WriteLastImmediate})) decides = 1'b1;
      end else if (index == 4'd7 && !is_first_q) begin
        decides             = 1'b1;
        fate_o.is_candidate = is_folded && !beat_i.last && !first_waits_i;
        fate_o.gives_way    = first_waits_i;
      end else if (index == 4'd10) begin
        decides             = 1'b1;
        fate_o.is_candidate = is_opening;
      end
    end
  end

  assign decides_o     = take_i && decides && !decided_q;
  // Only a Write First is not decided about yet.
  assign first_comes_o = take_i && !decided_q && !ends_here_i && index == 4'd10 && is_opening;
  assign ready_o       = !(first_waits_i && !is_crowded_i && !decided_q && may_wait_q);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      index_q    <= '0;
      decided_q  <= 1'b0;
      has_tag_q  <= 1'b0;
      may_wait_q <= 1'b0;
    end else if (take_i) begin
      may_wait_q <= !beat_i.last && index == 4'd6 && !is_first;
      if (beat_i.last) begin
        index_q   <= '0;
        decided_q <= 1'b0;
        has_tag_q <= 1'b0;
      end else begin
        if (index_q != '1) index_q <= index_q + 1'b1;
        decided_q <= decided_q || decides;
        if (index_q == 4'd1) has_tag_q <= is_tag(type_);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (take_i) begin
      high_q <= beat_i.data[63:32];
      if (index_q == '0) to_q <= address_of(beat_i.data[47:0]);
      if (index == 4'd2) begin
        is_longer_q    <= length > LengthMin;
        is_just_long_q <= length == LengthMin;
      end
      if (index == 4'd6) begin
        is_first_q <= is_first;
        has_pad_q  <= data[61:60] != '0;
      end
    end
  end


endmodule
