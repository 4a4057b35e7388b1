// Chooses the slice of each frame of a fast port (netfold_switch_sliced). A packet of RoCE goes by its destination queue
// pair: both ends of a job's connections, and so contributions, sums and acknowledgements, have numbers with the same
// bits there. Every other frame goes by its addresses, in a way that is the same for both directions. The frame is read
// on its way in, as if zeros followed its end.
module slice_choice
  import switch_pkg::*;
#(
  parameter int unsigned Slices = 8,    // a power of two, 2 to 128
  parameter int unsigned Width  = 512,  // a power of two, at least 64
  localparam int unsigned Bytes = Width / 8,
  localparam int unsigned SliceWidth = $clog2(Slices)
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,

  input  logic                  s_valid_i,
  input  logic                  s_last_i,
  input  logic [Bytes-1:0]      s_keep_i,
  input  logic [Width-1:0]      s_data_i,

  // One for each frame, in order: three cycles after its end, or after the last header if that comes before.
  output logic                  m_valid_o,
  output logic [SliceWidth-1:0] m_slice_o
);

  localparam int unsigned HeaderBytes = 66;  // up to the queue pair of a tagged packet of v1
  localparam int unsigned HeaderBeats = (HeaderBytes + Bytes - 1) / Bytes;
  localparam int unsigned IndexWidth  = $clog2(HeaderBeats + 1);
  localparam int unsigned TagBytes    = 4;
  localparam int unsigned PairOfV1    = 61;  // the lowest byte of the destination queue pair
  localparam int unsigned PairOfV2    = 49;
  localparam logic [7:0]  PlainIp     = 8'h45;  // version 4, five words: no options
  localparam logic [7:0]  Udp         = 8'd17;
  localparam logic [13:0] NoFragment  = '0;

  typedef logic [SliceWidth-1:0] slice_t;

  logic [IndexWidth-1:0]       index_q;  // of the beat; stays behind the headers
  logic [HeaderBytes-1:0][7:0] header_q;
  logic                        decides, decided_q, compared_q, chosen_q;
  types_t                      types;

  assign decides = s_valid_i && index_q != IndexWidth'(HeaderBeats) &&
                   (s_last_i || index_q == IndexWidth'(HeaderBeats - 1));

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      index_q    <= '0;
      decided_q  <= 1'b0;
      compared_q <= 1'b0;
      chosen_q   <= 1'b0;
    end else begin
      if (s_valid_i) begin
        index_q <= s_last_i ? '0 : index_q + IndexWidth'(index_q != IndexWidth'(HeaderBeats));
      end
      decided_q  <= decides;
      compared_q <= decided_q;
      chosen_q   <= compared_q;
    end
  end

  for (genvar i = 0; i < HeaderBytes; i++) begin : gen_header
    localparam int unsigned Lane = i % Bytes;
    always_ff @(posedge clk_i) begin
      if (s_valid_i && index_q == IndexWidth'(i / Bytes)) begin
        header_q[i] <= s_keep_i[Lane] ? s_data_i[8*Lane +: 8] : '0;
      end else if (s_valid_i && index_q == '0) begin
        header_q[i] <= '0;
      end
    end
  end

  // --- Comparisons, without a VLAN tag (0) and with one (1) ---
  logic         has_tag_q;
  logic [1:0]   is_v1_q, is_v2_q;
  slice_t [1:0] pair_v1_q, pair_v2_q;
  slice_t       mixed, slice, slice_q;
  logic [7:0]   addresses, addresses_q;

  assign types = types_of(header_q[19:12]);

  always_comb begin
    addresses = '0;
    for (int unsigned i = 0; i < 12; i++) addresses ^= header_q[i];
  end

  always_ff @(posedge clk_i) begin
    has_tag_q   <= types.is_tag[0];
    is_v1_q     <= types.is_roce;
    addresses_q <= addresses;
    for (int unsigned i = 0; i < 2; i++) begin
      is_v2_q[i]   <= types.is_ip[i] && header_q[14 + TagBytes*i] == PlainIp && header_q[23 + TagBytes*i] == Udp &&
                      {header_q[20 + TagBytes*i][5:0], header_q[21 + TagBytes*i]} == NoFragment &&
                      {header_q[36 + TagBytes*i], header_q[37 + TagBytes*i]} == RocePort;
      pair_v1_q[i] <= header_q[PairOfV1 + TagBytes*i][SliceWidth:1];
      pair_v2_q[i] <= header_q[PairOfV2 + TagBytes*i][SliceWidth:1];
    end
  end

  // --- The choice ---
  always_comb begin
    mixed = '0;
    for (int unsigned i = 0; i < 8; i++) mixed[i % SliceWidth] ^= addresses_q[i];
    slice = mixed;
    if (is_v1_q[has_tag_q])      slice = pair_v1_q[has_tag_q];
    else if (is_v2_q[has_tag_q]) slice = pair_v2_q[has_tag_q];
  end

  always_ff @(posedge clk_i) slice_q <= slice;

  assign m_valid_o = chosen_q;
  assign m_slice_o = slice_q;

  logic unused_header;
  assign unused_header = ^{types.is_tag[1], header_q};

endmodule
