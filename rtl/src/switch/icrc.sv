// The invariant CRC of RoCE frames as they pass, a beat per cycle. It is the reflected CRC-32 over eight bytes of ones
// (in place of the local routing header) and the packet from its network header on. Fields that routers may change count
// as ones: traffic class, flow label and hop limit of v1's GRH; type of service, time to live and both checksums of v2's
// IPv4 and UDP; and the fifth byte of the BTH (allreduce-switch, IV-D; IBA 1.2.1, 7.8.1 and annex A17).
//
// A packet begins and ends within beats: at byte 14, or 18 behind a VLAN tag, and after two or six bytes of the last
// beat, as all lengths are multiples of four. Bytes outside count as zeros. The register begins with what so many
// zeros turn into the right start. A check compares it with what the zeros behind the packet make of the right
// end. A code must not contain them: the packet's last bytes are moved to the end of their beat.
module icrc #(
  parameter bit Makes = 1'b1  // the code; 0: it is only checked, in fewer LUTs
) (
  input  logic        clk_i,
  input  logic        rst_ni,

  input  logic        valid_i,
  input  logic        first_i,        // of the frame
  input  logic        is_v2_i,        // from the second beat on
  input  logic        has_tag_i,
  input  logic [63:0] data_i,
  input  logic        ends_i,         // what is covered ends in this beat,
  input  logic        ends_at_six_i,  // with its sixth byte, else its second

  // In the cycle after, until the next frame.
  output logic [31:0] icrc_o,         // if Makes: of what is covered; the lowest byte goes first
  output logic        is_right_o      // what is covered ended with its own ICRC
);

  localparam logic [31:0] Polynomial = 32'hedb88320;
  localparam logic [31:0] Start      = 32'hdebb20e3;  // the register behind eight bytes of ones
  localparam logic [31:0] Residue    = 32'hdebb20e3;  // and behind any packet with its ICRC

  // The register behind so many zero bytes, and before them.
  function automatic logic [31:0] forth(logic [31:0] register, int unsigned bytes);
    for (int unsigned i = 0; i < 8 * bytes; i++) register = {1'b0, register[31:1]} ^ (register[0] ? Polynomial : '0);
    return register;
  endfunction

  function automatic logic [31:0] back(logic [31:0] register, int unsigned bytes);
    for (int unsigned i = 0; i < 8 * bytes; i++) begin
      register = register[31] ? {register[30:0] ^ Polynomial[30:0], 1'b1} : {register[30:0], 1'b0};
    end
    return register;
  endfunction

  localparam logic [31:0] StartPlain = back(Start, 6), StartTagged = back(Start, 2);
  localparam logic [31:0] RightAtTwo = forth(Residue, 6), RightAtSix = forth(Residue, 2);

  logic [3:0]  index_q;  // of the beat, up to eight: from there on all are alike
  logic [7:0]  ones;     // bytes of the beat that count as ones
  logic        ended_q, ended_at_six_q;
  logic [31:0] crc_q, crc_in, crc_d;
  logic [63:0] data;

  // --- What counts of a beat ---
  always_comb begin
    data   = data_i;
    crc_in = crc_q;
    unique case ({is_v2_i, has_tag_i})
      2'b00: unique case (index_q)
        4'd1:    ones = 8'b1000_0000;
        4'd2:    ones = 8'b0010_0011;
        4'd7:    ones = 8'b0000_0100;
        default: ones = '0;
      endcase
      2'b01: unique case (index_q)
        4'd2:    ones = 8'b0011_1000;
        4'd3:    ones = 8'b0000_0010;
        4'd7:    ones = 8'b0100_0000;
        default: ones = '0;
      endcase
      2'b10: unique case (index_q)
        4'd1:    ones = 8'b1000_0000;
        4'd2:    ones = 8'b0100_0000;
        4'd3:    ones = 8'b0000_0011;
        4'd5:    ones = 8'b0100_0011;
        default: ones = '0;
      endcase
      default: unique case (index_q)
        4'd2:    ones = 8'b0000_1000;
        4'd3:    ones = 8'b0011_0100;
        4'd5:    ones = 8'b0011_0000;
        4'd6:    ones = 8'b0000_0100;
        default: ones = '0;
      endcase
    endcase
    for (int unsigned i = 0; i < 8; i++) if (ones[i]) data[8*i +: 8] = '1;
    if (index_q == 4'd1) begin
      data[47:0] = '0;
      if (!is_v2_i) data[51:48] = '1;  // of the traffic class
      crc_in = StartPlain;
    end
    if (index_q == 4'd2 && has_tag_i) begin
      data[15:0] = '0;
      if (!is_v2_i) data[19:16] = '1;
      crc_in = StartTagged;
    end
  end

  // --- Its last bytes ---
  logic [63:0] mixed, covered;  // the register acts like the first bits of the data
  logic [31:0] rest, crc;       // ... and moves up where there are fewer

  assign mixed = data ^ 64'(crc_in);

  always_comb begin
    covered = mixed;
    rest    = '0;
    if (ends_i && Makes) begin
      covered = ends_at_six_i ? {mixed[47:0], 16'd0} : {mixed[15:0], 48'd0};
      rest    = ends_at_six_i ? '0 : {16'd0, crc_in[31:16]};
    end else if (ends_i) begin
      covered = ends_at_six_i ? {16'd0, data[47:0]} ^ 64'(crc_in) : {48'd0, data[15:0]} ^ 64'(crc_in);
    end
  end

  crc32 #(.Width(64)) u_crc (.crc_i('0), .data_i(covered), .crc_o(crc));
  assign crc_d = crc ^ rest;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      index_q <= '0;
      ended_q <= 1'b0;
    end else if (valid_i) begin
      if (first_i) begin
        index_q <= 4'd1;
        ended_q <= 1'b0;
      end else begin
        if (!index_q[3]) index_q <= index_q + 1'b1;
        ended_q <= ended_q || ends_i;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_i && (first_i || !ended_q)) begin
      crc_q          <= crc_d;
      ended_at_six_q <= ends_at_six_i;
    end
  end

  // --- Its end ---
  assign icrc_o     = Makes ? ~crc_q : '0;
  assign is_right_o = ended_q && crc_q == (Makes ? Residue : ended_at_six_q ? RightAtSix : RightAtTwo);

endmodule
