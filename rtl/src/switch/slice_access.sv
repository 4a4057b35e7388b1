// One AXI-Lite for the registers of all slices: the highest bit of an address says that a write goes to all of them; the
// bits below say which slice an access is for, and the rest its register. One access at a time.
module slice_access #(
  parameter int unsigned Slices = 8,  // a power of two, 2 to 128
  localparam int unsigned SliceWidth   = $clog2(Slices),
  localparam int unsigned AddressWidth = 13 + SliceWidth + 1
) (
  input  logic                    clk_i,
  input  logic                    rst_ni,

  input  logic [AddressWidth-1:0] awaddr_i,
  input  logic                    awvalid_i,
  output logic                    awready_o,
  input  logic                    wvalid_i,
  output logic                    wready_o,
  output logic [1:0]              bresp_o,   // of all: of one that refused, if any
  output logic                    bvalid_o,
  input  logic                    bready_i,
  input  logic [AddressWidth-1:0] araddr_i,
  input  logic                    arvalid_i,
  output logic                    arready_o,
  output logic [31:0]             rdata_o,
  output logic [1:0]              rresp_o,
  output logic                    rvalid_o,
  input  logic                    rready_i,

  // Of the slices. Addresses and what is written stand at the ports until they have taken them.
  output logic [Slices-1:0]       m_awvalid_o,
  input  logic [Slices-1:0]       m_awready_i,  // with wready
  input  logic [Slices-1:0][1:0]  m_bresp_i,
  input  logic [Slices-1:0]       m_bvalid_i,
  output logic [Slices-1:0]       m_arvalid_o,
  input  logic [Slices-1:0]       m_arready_i,
  input  logic [Slices-1:0][31:0] m_rdata_i,
  input  logic [Slices-1:0][1:0]  m_rresp_i,
  input  logic [Slices-1:0]       m_rvalid_i
);

  logic [Slices-1:0] asks_q, waits_q, left, write_to, read_from;  // asks_q: has not taken the address yet
  logic              busy_q, is_write_q, done, answers, starts_write, starts_read, bvalid_q, rvalid_q;
  logic [1:0]        response_q, response;
  logic [31:0]       rdata_q, rdata;

  function automatic logic [Slices-1:0] one_of(logic [AddressWidth-1:0] address);
    return address[AddressWidth-1] ? Slices'(1) : Slices'(1) << address[13 +: SliceWidth];
  endfunction

  assign answers      = bvalid_q || rvalid_q;  // the access before
  assign write_to     = awaddr_i[AddressWidth-1] ? '1 : one_of(awaddr_i);
  assign read_from    = one_of(araddr_i);
  assign starts_write = !busy_q && !answers && awvalid_i && wvalid_i;
  assign starts_read  = !busy_q && !answers && arvalid_i && !starts_write;
  assign left         = waits_q & ~(is_write_q ? m_bvalid_i : m_rvalid_i);
  assign done         = busy_q && left == '0;

  always_comb begin
    response = response_q;
    rdata    = '0;
    for (int unsigned i = 0; i < Slices; i++) begin
      if (waits_q[i] && m_bvalid_i[i] && is_write_q)  response |= m_bresp_i[i];
      if (waits_q[i] && m_rvalid_i[i] && !is_write_q) response |= m_rresp_i[i];
      if (waits_q[i]) rdata |= m_rdata_i[i];
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      busy_q     <= 1'b0;
      is_write_q <= 1'b0;
      asks_q     <= '0;
      waits_q    <= '0;
      bvalid_q   <= 1'b0;
      rvalid_q   <= 1'b0;
      response_q <= '0;
    end else begin
      busy_q   <= starts_write || starts_read || (busy_q && !done);
      bvalid_q <= (done && is_write_q) || (bvalid_q && !bready_i);
      rvalid_q <= (done && !is_write_q) || (rvalid_q && !rready_i);
      if (starts_write || starts_read) begin
        is_write_q <= starts_write;
        asks_q     <= starts_write ? write_to : read_from;
        waits_q    <= starts_write ? write_to : read_from;
        response_q <= '0;
      end else begin
        asks_q  <= asks_q & ~(is_write_q ? m_awready_i : m_arready_i);
        waits_q <= left;
        if (busy_q) response_q <= response;
      end
    end
  end

  always_ff @(posedge clk_i) if (done) rdata_q <= rdata;

  assign m_awvalid_o = is_write_q ? asks_q : '0;
  assign m_arvalid_o = is_write_q ? '0 : asks_q;
  assign awready_o   = done && is_write_q;
  assign wready_o    = awready_o;
  assign arready_o   = done && !is_write_q;
  assign bvalid_o    = bvalid_q;
  assign bresp_o     = response_q;
  assign rvalid_o    = rvalid_q;
  assign rresp_o     = response_q;
  assign rdata_o     = rdata_q;

endmodule
