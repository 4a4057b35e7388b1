// The sending half of a gigabit MAC (IEEE 802.3, clauses 3 and 4): the beats of a frame become the bytes for a PHY, with
// preamble, padding up to 60 bytes, FCS and the gap between frames. A frame that is to be sent damaged gets the
// complement of its FCS. So does a frame whose next beat is not there in time; its rest is dropped.
module gmii_send
  import switch_pkg::*;
(
  input  logic        clk_i,  // 125 MHz
  input  logic        rst_ni,

  input  logic        s_tvalid_i,
  output logic        s_tready_o,
  input  logic [63:0] s_tdata_i,
  input  logic [7:0]  s_tkeep_i,
  input  logic        s_tlast_i,
  input  logic        s_tuser_i,  // with the last beat: to be sent damaged

  output logic        valid_o,
  output logic [7:0]  data_o
);

  localparam logic [7:0] Preamble = 8'h55, Delimiter = 8'hd5;
  localparam logic [3:0] PreambleBytes = 4'd8, FcsBytes = 4'd4, GapBytes = 4'd12;
  localparam logic [5:0] BytesMin = 6'd60;

  typedef enum logic [2:0] {Wait, Head, Data, Pad, Fcs, Gap} state_e;

  state_e      state_q, state_d;
  logic [3:0]  count_q;     // bytes of this state so far, but for Data and Pad
  logic [5:0]  bytes_q;     // of the frame without its FCS, up to BytesMin
  logic [63:0] beat_q;      // its next byte is the lowest
  logic [2:0]  left_q;      // bytes in it after that one
  logic        is_last_q, is_bad_q, drops_q, loads, ends_beat, is_late, is_long;
  logic [31:0] crc_q, crc;
  logic [7:0]  byte_;

  assign ends_beat  = state_q == Data && left_q == '0;
  assign loads      = (state_q == Head && count_q == PreambleBytes - 4'd1) || (ends_beat && !is_last_q && s_tvalid_i);
  assign is_late    = ends_beat && !is_last_q && !s_tvalid_i;
  assign is_long    = bytes_q >= BytesMin - 6'd1;  // with the byte that is sent now
  assign s_tready_o = loads || drops_q;
  assign byte_      = state_q == Pad ? '0 : beat_q[7:0];

  crc32 #(.Width(8)) u_crc (.crc_i(crc_q), .data_i(byte_), .crc_o(crc));

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      Wait:    if (s_tvalid_i && !drops_q) state_d = Head;
      Head:    if (count_q == PreambleBytes - 4'd1) state_d = Data;
      Data:    if (is_late || (ends_beat && is_last_q)) state_d = is_long ? Fcs : Pad;
      Pad:     if (is_long) state_d = Fcs;
      Fcs:     if (count_q == FcsBytes - 4'd1) state_d = Gap;
      default: if (count_q == GapBytes - 4'd2) state_d = Wait;  // which is a byte long itself
    endcase
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Wait;
      count_q <= '0;
      drops_q <= 1'b0;
      valid_o <= 1'b0;
    end else begin
      state_q <= state_d;
      count_q <= state_d != state_q ? '0 : count_q + 4'd1;
      drops_q <= is_late || (drops_q && !(s_tvalid_i && s_tlast_i));
      valid_o <= state_q inside {Head, Data, Pad, Fcs};
    end
  end

  always_ff @(posedge clk_i) begin
    beat_q <= beat_q >> 8;
    left_q <= left_q - 3'd1;
    if (loads) begin
      beat_q    <= s_tdata_i;
      left_q    <= s_tlast_i ? extra_of(s_tkeep_i) : 3'd7;
      is_last_q <= s_tlast_i;
    end
    if (state_q == Wait) begin
      is_bad_q <= 1'b0;
    end else if (is_late || (loads && s_tlast_i && s_tuser_i)) begin
      is_bad_q <= 1'b1;
    end
    if (state_q == Head) begin
      bytes_q <= '0;
      crc_q   <= '1;
    end else if (state_q inside {Data, Pad}) begin
      bytes_q <= bytes_q + 6'(bytes_q != BytesMin);
      crc_q   <= crc;
    end else begin
      crc_q <= crc_q >> 8;
    end
    unique case (state_q)
      Head:    data_o <= count_q == PreambleBytes - 4'd1 ? Delimiter : Preamble;
      Fcs:     data_o <= is_bad_q ? crc_q[7:0] : ~crc_q[7:0];
      default: data_o <= byte_;
    endcase
  end

endmodule
