// One step of CRC-32 (the one of Ethernet and zlib, reflected) over a beat: combinational, an exclusive-or of the
// register and the data. Byte 0 is the lowest. Start with all ones, invert at the end.
module crc32 #(
  parameter int unsigned Width = 256  // bits of data
) (
  input  logic [31:0]      crc_i,
  input  logic [Width-1:0] data_i,
  output logic [31:0]      crc_o
);

  localparam logic [31:0] Polynomial = 32'hedb88320;

  typedef logic [31:0][Width-1:0] masks_t;

  // Which bits of the data each bit of the register depends on. The last bit of the data puts the polynomial into the
  // register; each bit before it has been shifted once more.
  function automatic masks_t masks_of_data();
    masks_t      masks;
    logic [31:0] reached = Polynomial;
    for (int bit_ = int'(Width) - 1; bit_ >= 0; bit_--) begin
      for (int place = 0; place < 32; place++) masks[place][bit_] = reached[place];
      reached = {1'b0, reached[31:1]} ^ (reached[0] ? Polynomial : 32'd0);
    end
    return masks;
  endfunction

  localparam masks_t Masks = masks_of_data();

  logic [Width-1:0] mixed;  // the register acts like the first bits of the data
  logic [31:0]      rest;   // ... and what is longer than the data moves up

  assign mixed = data_i ^ Width'(crc_i);
  assign rest  = Width < 32 ? crc_i >> Width : '0;

  always_comb begin
    for (int unsigned place = 0; place < 32; place++) crc_o[place] = ^(mixed & Masks[place]) ^ rest[place];
  end

endmodule
