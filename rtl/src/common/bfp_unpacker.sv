// The gearbox of block floating point, from the wire: full beats become the pieces of blocks that bfp_decoder takes. A
// command says how many beats of numbers a chunk holds; what the last beat on the wire holds beyond them is dropped.
// A chunk that ends on the wire before or after its last number is reported: the two ends mean different things.
module bfp_unpacker #(
  parameter int unsigned Lanes    = 16,
  parameter int unsigned Block    = 16,
  parameter int unsigned Mantissa = 7,
  parameter int unsigned CountWidth = 16,
  localparam int unsigned BlocksPerBeat = Lanes > Block ? Lanes / Block : 1,
  localparam int unsigned BeatsPerBlock = Block > Lanes ? Block / Lanes : 1
) (
  input  logic                          clk_i,
  input  logic                          rst_ni,

  input  logic                          command_valid_i,
  output logic                          command_ready_o,
  input  logic [CountWidth-1:0]         command_beats_i,  // of numbers, at least one

  input  logic                          s_tvalid_i,
  output logic                          s_tready_o,
  input  logic [32*Lanes-1:0]           s_tdata_i,
  input  logic                          s_tlast_i,

  output logic                          m_tvalid_o,
  input  logic                          m_tready_i,
  output logic [8*BlocksPerBeat-1:0]    m_exponent_o,
  output logic [(Mantissa+1)*Lanes-1:0] m_mantissa_o,
  output logic                          m_tlast_o,

  output logic                          mismatch_o
);

  localparam int unsigned BeatBytes     = 4 * Lanes;
  localparam int unsigned MantissaBytes = (Mantissa + 1) * Lanes / 8;
  localparam int unsigned PieceBytes    = BlocksPerBeat + MantissaBytes;
  localparam int unsigned BlockBytes    = PieceBytes / BlocksPerBeat;
  localparam int unsigned LevelWidth    = $clog2(BeatBytes + PieceBytes + 1);
  localparam int unsigned PlaceWidth    = $clog2(PieceBytes + 1);  // of where a beat is put
  localparam int unsigned IndexWidth    = BeatsPerBlock > 1 ? $clog2(BeatsPerBlock) : 1;

  logic [8*(BeatBytes+PieceBytes)-1:0] bytes_q, bytes_kept, placed;
  logic [LevelWidth-1:0]               level_q, level_kept, needed;
  logic [CountWidth-1:0]               left_q;      // beats of numbers still to give
  logic [IndexWidth-1:0]               index_q;     // of the beat in its block
  logic [7:0]                          exponent_q;  // of a block that goes on
  logic                                ended_q;     // the chunk's last beat on the wire is here
  logic                                is_first, give, give_last, take;

  assign is_first   = BeatsPerBlock == 1 || index_q == '0;
  assign needed     = is_first ? LevelWidth'(PieceBytes) : LevelWidth'(MantissaBytes);
  assign m_tvalid_o = left_q != '0 && level_q >= needed;
  assign m_tlast_o  = left_q == CountWidth'(1);
  assign give       = m_tvalid_o && m_tready_i;
  assign give_last  = give && m_tlast_o;

  always_comb begin
    for (int unsigned block = 0; block < BlocksPerBeat; block++) begin
      if (is_first) begin
        m_exponent_o[8*block +: 8] = bytes_q[8*BlockBytes*block +: 8];
        m_mantissa_o[8*(BlockBytes-1)*block +: 8*(BlockBytes-1)] =
            bytes_q[8*BlockBytes*block+8 +: 8*(BlockBytes-1)];
      end else begin
        m_exponent_o[8*block +: 8] = exponent_q;
        m_mantissa_o[8*(BlockBytes-1)*block +: 8*(BlockBytes-1)] = bytes_q[8*BlockBytes*block +: 8*(BlockBytes-1)];
      end
    end
  end

  always_comb begin
    level_kept = level_q;
    bytes_kept = bytes_q;
    if (give_last) begin
      level_kept = '0;
      bytes_kept = '0;
    end else if (give) begin
      level_kept = level_q - needed;
      bytes_kept = is_first ? bytes_q >> (8 * PieceBytes) : bytes_q >> (8 * MantissaBytes);
    end
  end

  assign s_tready_o = level_kept <= LevelWidth'(PieceBytes) && (!ended_q || give_last);
  assign take       = s_tvalid_i && s_tready_o;
  assign placed     = (8*(BeatBytes+PieceBytes))'(s_tdata_i) << {level_kept[PlaceWidth-1:0], 3'b000};

  assign command_ready_o = left_q == '0 || give_last;
  // Too short: the end is here, and less than a piece is left. Too long: all is given before the end came.
  assign mismatch_o = (ended_q && left_q != '0 && level_q < needed) || (give_last && !ended_q);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      level_q <= '0;
      bytes_q <= '0;
      left_q  <= '0;
      index_q <= '0;
      ended_q <= 1'b0;
    end else begin
      level_q <= level_kept + (take ? LevelWidth'(BeatBytes) : '0);
      bytes_q <= bytes_kept | (take ? placed : '0);
      if (command_valid_i && command_ready_o) begin
        left_q <= command_beats_i;
      end else if (give) begin
        left_q <= left_q - 1'b1;
      end
      if (give) index_q <= BeatsPerBlock == 1 || index_q == IndexWidth'(BeatsPerBlock - 1) ? '0 : index_q + 1'b1;
      ended_q <= take ? s_tlast_i : ended_q && !give_last;
    end
  end

  always_ff @(posedge clk_i) begin
    if (give && is_first) exponent_q <= bytes_q[7:0];
  end

endmodule
