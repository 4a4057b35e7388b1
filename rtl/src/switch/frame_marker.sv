// Reads a frame's headers on its way into the Port FIFO and marks the beats that show something about it (mark_e). So
// DEC_FSM, behind the FIFO, compares no types, opcodes and lengths: the comparisons with the decisions after them were
// the longest paths of the switch. Marks behind one that decides mean nothing.
module frame_marker
  import switch_pkg::*;
(
  input  logic  clk_i,
  input  logic  rst_ni,

  input  logic  take_i,  // the beat is taken
  input  beat_t beat_i,
  output mark_e mark_o
);

  localparam logic [15:0] Magic     = 16'h4e46;
  localparam logic [3:0]  Version   = 4'd1;
  localparam logic [15:0] LengthMin = 16'd52;  // BTH, RETH, aggregation header, ICRC

  function automatic logic is_tag(logic [15:0] ether_type);
    return ether_type == 16'h8100 || ether_type == 16'h88a8;
  endfunction

  logic [3:0]  index_q, index;  // of the beat; and as if there were no tag
  logic        has_tag_q, is_longer_q, is_just_long_q, has_pad_q;
  logic [31:0] high_q;
  logic [63:0] data;
  logic [15:0] type_, inner_type, innermost_type, length;
  logic [7:0]  opcode;
  logic        is_ours;
  logic        unused_parts;

  // With a VLAN tag, all bytes behind the type are four bytes later.
  assign data  = has_tag_q ? {beat_i.data[31:0], high_q} : beat_i.data;
  assign index = index_q - 4'(has_tag_q);

  assign type_          = number_of_2(beat_i.data[47:32]);
  assign inner_type     = number_of_2(beat_i.data[15:0]);
  assign innermost_type = number_of_2(beat_i.data[47:32]);
  assign length         = number_of_2(data[31:16]);
  assign opcode         = data[55:48];
  assign is_ours        = number_of_2(data[31:16]) == Magic && data[39:36] == Version &&
                          (is_longer_q || (is_just_long_q && !has_pad_q));
  assign unused_parts   = ^{beat_i.error, data[63:62], data[59:56], data[47:40], data[35:32], data[15:0]};

  always_comb begin
    mark_o = MarkNone;
    if (index_q == 4'd1) begin
      if (is_tag(type_))          mark_o = beat_i.last ? MarkRunt : MarkTag;
      else if (type_ != RoceType) mark_o = MarkOther;
    end else if (index_q == 4'd2 && has_tag_q) begin
      if (beat_i.last && beat_i.extra < (is_tag(inner_type) ? 3'd5 : 3'd1)) mark_o = MarkRunt;
      else if (is_tag(inner_type) && is_tag(innermost_type))                mark_o = MarkOvertagged;
      else if (inner_type != RoceType)                                      mark_o = MarkOther;
    end else if (index == 4'd6) begin
      if (opcode inside {WriteMiddle, WriteLast, WriteLastImmediate}) mark_o = MarkLater;
      else if (opcode != WriteFirst)                                  mark_o = MarkOther;
    end else if (index == 4'd10) begin
      mark_o = is_ours && !beat_i.last ? MarkFirst : MarkOther;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      index_q   <= '0;
      has_tag_q <= 1'b0;
    end else if (take_i) begin
      if (beat_i.last) begin
        index_q   <= '0;
        has_tag_q <= 1'b0;
      end else begin
        if (index_q != '1) index_q <= index_q + 1'b1;
        if (index_q == 4'd1) has_tag_q <= is_tag(type_);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (take_i) begin
      high_q <= beat_i.data[63:32];
      if (index == 4'd2) begin
        is_longer_q    <= length > LengthMin;
        is_just_long_q <= length == LengthMin;
      end
      if (index == 4'd6) has_pad_q <= data[61:60] != '0;
    end
  end

endmodule
