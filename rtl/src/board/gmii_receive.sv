// The receiving half of a gigabit MAC (IEEE 802.3, clauses 3 and 4): the bytes of a PHY become the beats of a frame,
// without preamble and FCS. A beat leaves when the next byte after it is known to be no FCS, so frames are cut through.
// The last beat says whether the frame is damaged: a wrong FCS, an error that the PHY saw, or less than 64 bytes.
module gmii_receive (
  input  logic        clk_i,  // the PHY's, 125 MHz
  input  logic        rst_ni,

  input  logic        valid_i,
  input  logic        error_i,
  input  logic [7:0]  data_i,

  output logic        m_tvalid_o,
  output logic [63:0] m_tdata_o,
  output logic [7:0]  m_tkeep_o,
  output logic        m_tlast_o,
  output logic        m_tuser_o  // with the last beat: a damaged frame
);

  localparam logic [7:0]  Preamble = 8'h55, Delimiter = 8'hd5;
  localparam logic [31:0] Residue  = 32'hdebb20e3;  // the register behind any frame with its FCS
  localparam logic [6:0]  BytesMin = 7'd64;

  typedef enum logic [1:0] {Wait, Frame, Skip} state_e;

  state_e          state_q;
  logic [3:0][7:0] late_q;   // the last four bytes: the FCS, when the frame ends
  logic [6:0]      bytes_q;  // of the frame, up to BytesMin
  logic [31:0]     crc_q, crc;
  logic            is_bad_q, takes, ends, is_full, leaves;
  logic [7:0][7:0] beat_q;
  logic [3:0]      count_q;  // bytes in it

  crc32 #(.Width(8)) u_crc (.crc_i(crc_q), .data_i, .crc_o(crc));

  assign takes   = state_q == Frame && valid_i;
  assign ends    = state_q == Frame && !valid_i;
  assign is_full = count_q == 4'd8;
  assign leaves  = takes && bytes_q >= 7'd4;  // the oldest of the last four

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q    <= Skip;  // a frame may be under way
      m_tvalid_o <= 1'b0;
    end else begin
      if (!valid_i) begin
        state_q <= Wait;
      end else if (state_q == Wait && data_i != Preamble) begin
        state_q <= data_i == Delimiter && !error_i ? Frame : Skip;
      end
      m_tvalid_o <= (leaves && is_full) || (ends && count_q != '0);
    end
  end

  always_ff @(posedge clk_i) begin
    if (takes) begin
      late_q  <= {data_i, late_q[3:1]};
      crc_q   <= crc;
      bytes_q <= bytes_q + 7'(bytes_q != BytesMin);
      if (error_i) is_bad_q <= 1'b1;
    end else begin
      crc_q    <= '1;
      bytes_q  <= '0;
      is_bad_q <= 1'b0;
    end
    if (leaves) begin
      beat_q[is_full ? 3'd0 : count_q[2:0]] <= late_q[0];
      count_q                               <= is_full ? 4'd1 : count_q + 4'd1;
    end else if (!takes) begin
      count_q <= '0;
    end
    m_tdata_o <= beat_q;
    m_tkeep_o <= 8'((9'd1 << count_q) - 9'd1);
    m_tlast_o <= ends;
    m_tuser_o <= ends && (is_bad_q || bytes_q != BytesMin || crc_q != Residue);
  end

endmodule
