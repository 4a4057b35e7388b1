// The gearbox of block floating point, towards the wire: pieces of blocks (17 bytes a block of 16) become full beats.
// A block is its exponent and then its mantissas, least significant bit first. The last beat of a chunk is filled up
// with zeros. The first beat of a chunk begins with a block.
module bfp_packer #(
  parameter int unsigned Lanes    = 16,
  parameter int unsigned Block    = 16,
  parameter int unsigned Mantissa = 7,
  localparam int unsigned BlocksPerBeat = Lanes > Block ? Lanes / Block : 1
) (
  input  logic                          clk_i,
  input  logic                          rst_ni,

  input  logic                          s_tvalid_i,
  output logic                          s_tready_o,
  input  logic [8*BlocksPerBeat-1:0]    s_exponent_i,
  input  logic [(Mantissa+1)*Lanes-1:0] s_mantissa_i,
  input  logic                          s_first_i,
  input  logic                          s_tlast_i,

  output logic                          m_tvalid_o,
  input  logic                          m_tready_i,
  output logic [32*Lanes-1:0]           m_tdata_o,
  output logic                          m_tlast_o
);

  localparam int unsigned BeatBytes     = 4 * Lanes;
  localparam int unsigned MantissaBytes = (Mantissa + 1) * Lanes / 8;  // of a beat
  localparam int unsigned PieceBytes    = BlocksPerBeat + MantissaBytes;
  localparam int unsigned BlockBytes    = PieceBytes / BlocksPerBeat;  // where a beat holds whole blocks
  localparam int unsigned LevelWidth    = $clog2(2 * BeatBytes + 1);

  logic [8*PieceBytes-1:0]             piece;
  logic [LevelWidth-1:0]               piece_bytes, level_q, level_kept, level_next;
  logic [8*(BeatBytes+PieceBytes)-1:0] bytes_q, bytes_kept, placed;
  logic [1:0]                          ends_q, ends_kept, ends_next;  // the first, the second beat ends a chunk
  logic                                is_full, give, take;

  // A piece: the exponents of the blocks that begin here, and mantissas.
  if (BlocksPerBeat > 1) begin : gen_blocks
    for (genvar block = 0; block < BlocksPerBeat; block++) begin : gen_block
      assign piece[8*BlockBytes*block +: 8*BlockBytes] = {
        s_mantissa_i[8*(BlockBytes-1)*block +: 8*(BlockBytes-1)], s_exponent_i[8*block +: 8]
      };
    end
  end else begin : gen_part
    assign piece = s_first_i ? {s_mantissa_i, s_exponent_i} : {8'd0, s_mantissa_i};
  end
  assign piece_bytes = BlocksPerBeat > 1 || s_first_i ? LevelWidth'(PieceBytes) : LevelWidth'(MantissaBytes);

  // What is given leaves a rest; what is taken is put behind that. The end of a chunk fills its beat up.
  assign is_full    = level_q >= LevelWidth'(BeatBytes);
  assign give       = is_full && m_tready_i;
  assign s_tready_o = !is_full || give;
  assign take       = s_tvalid_i && s_tready_o;

  always_comb begin
    level_kept = level_q;
    bytes_kept = bytes_q;
    ends_kept  = ends_q;
    if (give) begin
      level_kept = level_q - LevelWidth'(BeatBytes);
      bytes_kept = bytes_q >> (8 * BeatBytes);
      ends_kept  = ends_q >> 1;
    end
  end
  assign placed = (8*(BeatBytes+PieceBytes))'(piece) << {level_kept, 3'b000};

  always_comb begin
    level_next = level_kept;
    ends_next  = ends_kept;
    if (take) begin
      level_next = level_kept + piece_bytes;
      if (s_tlast_i) begin
        if (level_next > LevelWidth'(BeatBytes)) begin
          level_next   = LevelWidth'(2 * BeatBytes);
          ends_next[1] = 1'b1;
        end else begin
          level_next   = LevelWidth'(BeatBytes);
          ends_next[0] = 1'b1;
        end
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      level_q <= '0;
      ends_q  <= '0;
      bytes_q <= '0;
    end else begin
      level_q <= level_next;
      ends_q  <= ends_next;
      bytes_q <= bytes_kept | (take ? placed : '0);
    end
  end

  assign m_tvalid_o = is_full;
  assign m_tdata_o  = bytes_q[8*BeatBytes-1:0];
  assign m_tlast_o  = ends_q[0];

endmodule
