// The gearbox of block floating point, towards the wire: pieces of blocks (17 bytes a block of 16) become full beats.
// A block is its exponent and then its mantissas, least significant bit first. The last beat of a chunk is filled up
// with zeros. The first beat of a chunk begins with a block.
//
// The beat is gathered in words of as many bytes as a piece has behind its first one. Those are turned until each is
// above its place in a word, and are then written where they belong: some into one word, the others into the next. The
// first byte, an exponent, is put into one word of the two beside them.
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

  localparam int unsigned BeatBytes  = 4 * Lanes;
  localparam int unsigned BlockBytes = 1 + (Mantissa + 1) * Lanes / BlocksPerBeat / 8;  // of a beat's part of a block
  localparam int unsigned RestBytes  = BlocksPerBeat * BlockBytes - 1;  // of a piece, behind its first
  localparam int unsigned PlaceWidth = $clog2(RestBytes);
  localparam int unsigned WordBytes  = 1 << PlaceWidth;
  localparam int unsigned Bytes      = BeatBytes + WordBytes + 1;  // a beat, and a piece that goes beyond it
  localparam int unsigned Words      = BeatBytes / WordBytes + 2;  // that these lie in
  localparam int unsigned LevelWidth = $clog2(2 * BeatBytes + 1);

  typedef logic [WordBytes-1:0][7:0] word_t;

  logic [7:0]                       first;
  logic [8*RestBytes-1:0]           rest;
  logic                             has_first;
  logic [LevelWidth-1:0]            level_q, level_kept, level_next;
  logic [1:0]                       ends_q, ends_kept, ends_next;  // the first, the second beat ends a chunk
  logic                             is_full, give, take, clear;

  // A piece: the exponents of the blocks that begin here, each before its mantissas.
  if (BlocksPerBeat > 1) begin : gen_blocks
    logic [8*(RestBytes+1)-1:0] piece;

    for (genvar block = 0; block < BlocksPerBeat; block++) begin : gen_block
      assign piece[8*BlockBytes*block +: 8*BlockBytes] = {
        s_mantissa_i[8*(BlockBytes-1)*block +: 8*(BlockBytes-1)], s_exponent_i[8*block +: 8]
      };
    end
    assign first     = piece[7:0];
    assign rest      = piece[8*(RestBytes+1)-1:8];
    assign has_first = 1'b1;
  end else begin : gen_part
    assign first     = s_exponent_i;
    assign rest      = s_mantissa_i;
    assign has_first = s_first_i;
  end

  // The bytes given leave a rest. The bytes taken are put behind it. The end of a chunk fills its beat up.
  assign is_full    = level_q >= LevelWidth'(BeatBytes);
  assign give       = is_full && m_tready_i;
  assign clear      = give || level_q == '0;
  assign s_tready_o = !is_full || m_tready_i;
  assign take       = s_tvalid_i && s_tready_o;
  assign level_kept = give ? level_q - LevelWidth'(BeatBytes) : level_q;
  assign ends_kept  = give ? ends_q >> 1 : ends_q;

  always_comb begin
    level_next = level_kept;
    ends_next  = ends_kept;
    if (take) begin
      level_next = level_kept + LevelWidth'(RestBytes) + LevelWidth'(has_first);
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
    end else begin
      level_q <= level_next;
      ends_q  <= ends_next;
    end
  end

  // --- Where a byte goes. Its place in a word does not depend on whether a beat is given ---
  logic [PlaceWidth-1:0] place;       // of the piece's first byte
  logic [PlaceWidth:0]   rest_place;
  logic [Words-1:0]      here;        // the word in which the piece begins
  word_t                 turned;
  word_t [1:0]           lanes;       // what goes into words of even and of odd number
  logic [WordBytes-1:0]  is_first, is_rest, is_beyond;

  assign place      = level_q[PlaceWidth-1:0];
  assign rest_place = (PlaceWidth + 1)'(place) + (PlaceWidth + 1)'(has_first);

  always_comb begin
    turned = (8*WordBytes)'(rest);
    for (int unsigned bit_ = 0; bit_ < PlaceWidth; bit_++) begin
      if (rest_place[bit_]) turned = word_t'({turned, turned} >> 8 * (WordBytes - (1 << bit_)));
    end
  end

  always_comb begin
    for (int unsigned lane = 0; lane < WordBytes; lane++) begin
      is_first[lane]  = has_first && PlaceWidth'(lane) == place;
      is_rest[lane]   = WordBytes == RestBytes ||
                        PlaceWidth'(lane) - rest_place[PlaceWidth-1:0] < PlaceWidth'(RestBytes);
      is_beyond[lane] = (PlaceWidth + 1)'(lane) < rest_place;
      for (int unsigned odd = 0; odd < 2; odd++) begin
        lanes[odd][lane] = is_first[lane] && level_q[PlaceWidth] == 1'(odd) ? first : turned[lane];
      end
    end
    for (int unsigned word = 0; word < Words; word++) begin
      here[word] = take && level_kept[LevelWidth-1:PlaceWidth] == (LevelWidth - PlaceWidth)'(word);
    end
  end

  // --- The bytes. Those that are not written are zero when a chunk ends: all begin as zeros ---
  logic [Bytes-1:0][7:0] bytes_q;

  for (genvar byte_ = 0; byte_ < Bytes; byte_++) begin : gen_byte
    localparam int unsigned Lane = byte_ % WordBytes;
    localparam int unsigned Word = byte_ / WordBytes;

    logic writes;

    assign writes = (here[Word] && (is_first[Lane] || (is_rest[Lane] && !is_beyond[Lane]))) ||
                    (Word > 0 && here[Word > 0 ? Word - 1 : 0] && is_rest[Lane] && is_beyond[Lane]);

    always_ff @(posedge clk_i) begin
      if (writes) bytes_q[byte_] <= lanes[Word%2][Lane];
      else if (give && byte_ + BeatBytes < Bytes) bytes_q[byte_] <= bytes_q[(byte_+BeatBytes)%Bytes];
      else if (clear) bytes_q[byte_] <= '0;
    end
  end

  assign m_tvalid_o = is_full;
  assign m_tdata_o  = bytes_q[BeatBytes-1:0];
  assign m_tlast_o  = ends_q[0];

endmodule
