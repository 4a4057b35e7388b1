// The registers over SPI (allreduce-switch, IV-F): mode 0, the highest bit first, sampled by the switch's clock, which
// must be eight times as fast as SCLK at least. While CS is low:
//
//   MOSI  write 1 | 0 0 | address 13 | data 32
//   MOSI  0 | 0 0 | address 13 | eight bits of patience |
//   MISO                                                 data 32
//
// A write that the registers refuse changes nothing, as reading shows.
module spi_slave (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        sclk_i,
  input  logic        cs_ni,
  input  logic        mosi_i,
  output logic        miso_o,

  // One access, until it is done.
  output logic        valid_o,
  output logic        write_o,
  output logic [12:0] address_o,
  output logic [31:0] wdata_o,
  input  logic        done_i,
  input  logic [31:0] rdata_i   // with done_i
);

  localparam logic [5:0] HeaderBits = 6'd16, WriteBits = 6'd48, PatienceBits = 6'd24;

  (* ASYNC_REG = "TRUE" *) logic [2:0] sclk_q;
  (* ASYNC_REG = "TRUE" *) logic [1:0] cs_nq, mosi_q;
  logic [5:0]  count_q;   // bits received
  logic [31:0] shift_q;
  logic [31:0] out_q;
  logic        is_write_q, valid_q, rises, falls, selected;
  logic [12:0] address_q;
  logic [31:0] received;

  assign rises    = sclk_q[1] && !sclk_q[2];
  assign falls    = !sclk_q[1] && sclk_q[2];
  assign selected = !cs_nq[1];
  assign received = {shift_q[30:0], mosi_q[1]};

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      sclk_q  <= '0;
      cs_nq   <= '1;
      mosi_q  <= '0;
      count_q <= '0;
      valid_q <= 1'b0;
    end else begin
      sclk_q  <= {sclk_q[1:0], sclk_i};
      cs_nq   <= {cs_nq[0], cs_ni};
      mosi_q  <= {mosi_q[0], mosi_i};
      valid_q <= valid_q && !done_i;
      if (!selected) begin
        count_q <= '0;
      end else if (rises && count_q != '1) begin
        count_q <= count_q + 1'b1;
        if (count_q == HeaderBits - 1'b1) valid_q <= !received[15];
        if (count_q == WriteBits - 1'b1) valid_q <= is_write_q;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (selected && rises) begin
      shift_q <= received;
      if (count_q == HeaderBits - 1'b1) begin
        is_write_q <= received[15];
        address_q  <= received[12:0];
      end
    end
    if (done_i) begin
      out_q <= rdata_i;
    end else if (falls && count_q > PatienceBits) begin
      out_q <= {out_q[30:0], 1'b0};
    end
  end

  assign miso_o    = out_q[31];
  assign valid_o   = valid_q;
  assign write_o   = is_write_q;
  assign address_o = address_q;
  assign wdata_o   = shift_q;

endmodule
