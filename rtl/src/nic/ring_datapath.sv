// Where numbers flow: from the left neighbour and from host memory, through the adders, to the right neighbour and to
// host memory, block floating point on the wire.
//
//   host ---> reader -----> adders --> encode --+---> pack ----+--> right
//                              ^                |              |
//                              |                +-> decode     |
//                              |                      |        |
//   left -----+--> decode -----+----------------------+--> writer --> host
//             +------------------------------------------------+
//
// An operation tells every fork and every junction once what to do with its chunk; each keeps its own queue and moves
// on at the chunk's last beat. So one chunk can be sent while an earlier one is still being stored. Own numbers that are
// only sent go through the adders as well: minus zero is added, which changes none.
//
// A sum is written as its owner's neighbours will read it: encoded, then decoded. Sums of others are passed on as they
// came.
module ring_datapath
  import nic_pkg::*;
#(
  parameter int unsigned Lanes      = 8,
  parameter int unsigned Block      = 16,
  parameter int unsigned Mantissa   = 7,
  parameter bit          HasBfp     = 1'b1,
  parameter bit          Subnormals = 1'b1,
  parameter int unsigned FifoDepth  = 256,
  parameter int unsigned BurstBeats = 16
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                drain_i,
  output logic                idle_o,

  input  logic                bfp_i,            // constant while there are operations

  input  logic                operation_valid_i,
  output logic                operation_ready_o,
  input  operation_t          operation_i,
  output logic                ended_o,          // a request

  output logic                read_command_valid_o,
  input  logic                read_command_ready_i,
  output logic [63:0]         read_command_address_o,
  output logic [15:0]         read_command_bytes_o,
  input  logic                read_tvalid_i,
  output logic                read_tready_o,
  input  logic [32*Lanes-1:0] read_tdata_i,

  output logic                write_command_valid_o,
  input  logic                write_command_ready_i,
  output logic [63:0]         write_command_address_o,
  output logic [15:0]         write_command_bytes_o,
  output logic                write_tvalid_o,
  input  logic                write_tready_i,
  output logic [32*Lanes-1:0] write_tdata_o,
  output logic [4*Lanes-1:0]  write_tkeep_o,
  output logic                write_tlast_o,
  input  logic                written_i,

  input  logic                left_tvalid_i,
  output logic                left_tready_o,
  input  logic [32*Lanes-1:0] left_tdata_i,
  input  logic                left_tlast_i,

  output logic                right_tvalid_o,
  input  logic                right_tready_i,
  output logic [32*Lanes-1:0] right_tdata_o,
  output logic                right_tlast_o,

  output logic                moves_o,          // a beat of numbers was sent, folded or stored, a cycle ago
  output logic                folded_o,         // a beat of sums left the adders
  output logic                malformed_o,
  output logic                mismatch_o        // a cycle ago
);

  localparam int unsigned DataWidth     = 32 * Lanes;
  localparam int unsigned BlocksPerBeat = Lanes > Block ? Lanes / Block : 1;

  // --- What an operation says to each fork and junction ---
  logic       reads, arrives, sends, stores, accept;
  logic       reader_ready, writer_ready, arrival_space, command_space, landing_space, keep_space;
  logic       send_space, store_space;
  chunk_t     read_chunk, write_chunk;
  arrival_t   arrival;
  logic       arrival_valid, arrival_taken;
  logic       landing_valid, landing_folds, landing_taken;
  logic       keep_valid, keeps, keep_taken;
  logic       send_valid, send_forwards, send_taken;
  logic       store_valid, store_kept, store_taken;
  logic       command_valid, command_ready;
  logic [15:0] command_beats;

  assign reads   = operation_i.step inside {StepSend, StepFold, StepFinish};
  assign arrives = operation_i.step inside {StepFold, StepFinish, StepGather, StepLast};
  assign sends   = operation_i.step inside {StepSend, StepFold, StepFinish, StepGather};
  assign stores  = operation_i.step inside {StepFinish, StepGather, StepLast};

  assign operation_ready_o = reader_ready && writer_ready && arrival_space && command_space && landing_space &&
                             keep_space && send_space && store_space;
  assign accept            = operation_valid_i && operation_ready_o;

  assign read_chunk = '{
    address: operation_i.source, elements: operation_i.elements, beats: operation_i.beats,
    flag: operation_i.step != StepSend
  };
  assign write_chunk = '{
    address: operation_i.destination, elements: operation_i.elements, beats: operation_i.beats,
    flag: operation_i.step == StepEnd
  };

  stream_queue #(.Width($bits(arrival_t)), .Depth(4)) u_arrivals (
    .clk_i,
    .rst_ni,
    .s_valid_i(accept && arrives),
    .s_ready_o(arrival_space),
    .s_data_i ({operation_i.beats, operation_i.step == StepGather}),
    .m_valid_o(arrival_valid),
    .m_ready_i(arrival_taken),
    .m_data_o (arrival)
  );

  stream_queue #(.Width(16), .Depth(4)) u_commands (
    .clk_i,
    .rst_ni,
    .s_valid_i(accept && arrives && bfp_i),
    .s_ready_o(command_space),
    .s_data_i (operation_i.beats),
    .m_valid_o(command_valid),
    .m_ready_i(command_ready),
    .m_data_o (command_beats)
  );

  stream_queue #(.Width(1), .Depth(4)) u_landings (
    .clk_i,
    .rst_ni,
    .s_valid_i(accept && arrives),
    .s_ready_o(landing_space),
    .s_data_i (operation_i.step inside {StepFold, StepFinish}),
    .m_valid_o(landing_valid),
    .m_ready_i(landing_taken),
    .m_data_o (landing_folds)
  );

  stream_queue #(.Width(1), .Depth(4)) u_keeps (
    .clk_i,
    .rst_ni,
    .s_valid_i(accept && reads),
    .s_ready_o(keep_space),
    .s_data_i (operation_i.step == StepFinish),
    .m_valid_o(keep_valid),
    .m_ready_i(keep_taken),
    .m_data_o (keeps)
  );

  stream_queue #(.Width(1), .Depth(4)) u_sends (
    .clk_i,
    .rst_ni,
    .s_valid_i(accept && sends),
    .s_ready_o(send_space),
    .s_data_i (operation_i.step == StepGather),
    .m_valid_o(send_valid),
    .m_ready_i(send_taken),
    .m_data_o (send_forwards)
  );

  stream_queue #(.Width(1), .Depth(4)) u_stores (
    .clk_i,
    .rst_ni,
    .s_valid_i(accept && stores),
    .s_ready_o(store_space),
    .s_data_i (operation_i.step == StepFinish),
    .m_valid_o(store_valid),
    .m_ready_i(store_taken),
    .m_data_o (store_kept)
  );

  // --- Own numbers ---
  logic                 local_valid, local_ready, local_folds, local_last, reader_idle, writer_idle;
  logic [DataWidth-1:0] local_data;

  memory_reader #(
    .Lanes     (Lanes),
    .FifoDepth (FifoDepth),
    .BurstBeats(BurstBeats)
  ) u_reader (
    .clk_i,
    .rst_ni,
    .drain_i,
    .idle_o           (reader_idle),
    .chunk_valid_i    (accept && reads),
    .chunk_ready_o    (reader_ready),
    .chunk_i          (read_chunk),
    .command_valid_o  (read_command_valid_o),
    .command_ready_i  (read_command_ready_i),
    .command_address_o(read_command_address_o),
    .command_bytes_o  (read_command_bytes_o),
    .s_tvalid_i       (read_tvalid_i),
    .s_tready_o       (read_tready_o),
    .s_tdata_i        (read_tdata_i),
    .m_tvalid_o       (local_valid),
    .m_tready_i       (local_ready),
    .m_tdata_o        (local_data),
    .m_tfolds_o       (local_folds),
    .m_tlast_o        (local_last)
  );

  // --- What arrives: forked to the right neighbour as it is, and decoded ---
  logic                 wire_valid, wire_ready, forward_valid, forward_ready;
  logic                 arrived_valid, arrived_ready, arrived_last;
  logic [DataWidth-1:0] arrived_data;

  logic                 fork_ready;

  stream_fork u_fork (
    .clk_i,
    .rst_ni,
    .s_valid_i(left_tvalid_i && arrival_valid),
    .s_ready_o(fork_ready),
    .to_i     ({arrival.forwards, 1'b1}),
    .m_valid_o({forward_valid, wire_valid}),
    .m_ready_i({forward_ready, wire_ready})
  );

  assign left_tready_o = arrival_valid && fork_ready;
  assign arrival_taken = left_tvalid_i && left_tready_o && left_tlast_i;

  // An FP32 chunk ends with its last beat, not before and not after.
  logic [15:0] beats_q;
  logic        mismatch, mismatch_fp32;

  assign mismatch_fp32 = left_tvalid_i && left_tready_o && left_tlast_i != (beats_q == arrival.beats - 16'd1);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      beats_q <= '0;
    end else if (left_tvalid_i && left_tready_o) begin
      beats_q <= left_tlast_i ? '0 : beats_q + 16'd1;
    end
  end

  // --- The sums, and what is sent as it is ---
  localparam logic [31:0] MinusZero = 32'h80000000;

  logic                 adder_ready, encode_valid, encode_ready, encode_last, encode_folded, store_arrived_ready;
  logic                 arrived_folds;
  logic [DataWidth-1:0] encode_data;

  assign arrived_folds = landing_valid && landing_folds;
  assign arrived_ready = landing_valid && (landing_folds ? adder_ready && local_folds : store_arrived_ready);
  assign landing_taken = arrived_valid && arrived_ready && arrived_last;

  fp32_adder_array #(
    .Lanes     (Lanes),
    .UserWidth (2),
    .Subnormals(Subnormals)
  ) u_adders (
    .clk_i,
    .rst_ni,
    .a_tvalid_i(!local_folds || (arrived_valid && arrived_folds)),
    .a_tready_o(adder_ready),
    .a_tdata_i (local_folds ? arrived_data : {Lanes{MinusZero}}),
    .b_tvalid_i(local_valid),
    .b_tready_o(local_ready),
    .b_tdata_i (local_data),
    .b_tuser_i ({local_folds, local_last}),
    .m_tvalid_o(encode_valid),
    .m_tready_i(encode_ready),
    .m_tdata_o (encode_data),
    .m_tuser_o ({encode_folded, encode_last})
  );

  // --- Forked: to the right neighbour, and to what it will read. Numbers here, pieces below: each has its own fork, so
  // no path leads from one to the other ---
  logic                 plain_ready, plain_taken, plain_out_valid, plain_kept_valid;
  logic                 out_valid, out_ready, out_last, kept_valid, kept_ready, kept_last;
  logic [DataWidth-1:0] out_data, kept_data;

  stream_fork u_plain_fork (
    .clk_i,
    .rst_ni,
    .s_valid_i(encode_valid && keep_valid && !bfp_i),
    .s_ready_o(plain_ready),
    .to_i     ({keeps, 1'b1}),
    .m_valid_o({plain_kept_valid, plain_out_valid}),
    .m_ready_i({kept_ready, out_ready})
  );

  assign plain_taken = keep_valid && plain_ready;

  if (HasBfp) begin : gen_bfp
    typedef struct packed {
      logic [8*BlocksPerBeat-1:0]    exponent;
      logic [(Mantissa+1)*Lanes-1:0] mantissa;
      logic                          is_first;  // of a block
      logic                          is_last;   // of the chunk
    } piece_t;

    logic                          unpack_ready, malformed_in, malformed_back, mismatch_in;
    logic                          decoded_valid, decoded_last, encoder_ready;
    logic                          encoded_valid, encoded_ready, piece_valid, piece_ready, pieces_ready;
    logic                          pack_valid, pack_ready, back_valid, back_ready;
    logic [DataWidth-1:0]          decoded_data;
    piece_t                        encoded, piece;
    logic                          packed_valid, packed_last, read_valid, read_last;
    logic [DataWidth-1:0]          packed_data, read_data;

    bfp_decode #(
      .Lanes     (Lanes),
      .Block     (Block),
      .Mantissa  (Mantissa),
      .CountWidth(16)
    ) u_decode (
      .clk_i,
      .rst_ni,
      .command_valid_i(command_valid),
      .command_ready_o(command_ready),
      .command_beats_i(command_beats),
      .s_tvalid_i     (wire_valid && bfp_i),
      .s_tready_o     (unpack_ready),
      .s_tdata_i      (left_tdata_i),
      .s_tlast_i      (left_tlast_i),
      .m_tvalid_o     (decoded_valid),
      .m_tready_i     (arrived_ready),
      .m_tdata_o      (decoded_data),
      .m_tlast_o      (decoded_last),
      .malformed_o    (malformed_in),
      .mismatch_o     (mismatch_in)
    );

    bfp_encoder #(
      .Lanes   (Lanes),
      .Block   (Block),
      .Mantissa(Mantissa)
    ) u_encoder (
      .clk_i,
      .rst_ni,
      .s_tvalid_i  (encode_valid && bfp_i),
      .s_tready_o  (encoder_ready),
      .s_tdata_i   (encode_data),
      .s_tlast_i   (encode_last),
      .m_tvalid_o  (encoded_valid),
      .m_tready_i  (encoded_ready),
      .m_exponent_o(encoded.exponent),
      .m_mantissa_o(encoded.mantissa),
      .m_first_o   (encoded.is_first),
      .m_tlast_o   (encoded.is_last)
    );

    // As in bfp_decode: whether pieces are taken may be known late in a cycle.
    stream_skid #(
      .Width($bits(piece_t))
    ) u_skid (
      .clk_i,
      .rst_ni,
      .s_valid_i(encoded_valid),
      .s_ready_o(encoded_ready),
      .s_data_i (encoded),
      .m_valid_o(piece_valid),
      .m_ready_i(piece_ready),
      .m_data_o (piece)
    );

    stream_fork u_piece_fork (
      .clk_i,
      .rst_ni,
      .s_valid_i(piece_valid && keep_valid),
      .s_ready_o(pieces_ready),
      .to_i     ({keeps, 1'b1}),
      .m_valid_o({back_valid, pack_valid}),
      .m_ready_i({back_ready, pack_ready})
    );

    assign piece_ready = keep_valid && pieces_ready;

    bfp_packer #(
      .Lanes   (Lanes),
      .Block   (Block),
      .Mantissa(Mantissa)
    ) u_packer (
      .clk_i,
      .rst_ni,
      .s_tvalid_i  (pack_valid),
      .s_tready_o  (pack_ready),
      .s_exponent_i(piece.exponent),
      .s_mantissa_i(piece.mantissa),
      .s_first_i   (piece.is_first),
      .s_tlast_i   (piece.is_last),
      .m_tvalid_o  (packed_valid),
      .m_tready_i  (out_ready),
      .m_tdata_o   (packed_data),
      .m_tlast_o   (packed_last)
    );

    bfp_decoder #(
      .Lanes    (Lanes),
      .Block    (Block),
      .Mantissa (Mantissa),
      .UserWidth(1)
    ) u_back (
      .clk_i,
      .rst_ni,
      .s_tvalid_i  (back_valid),
      .s_tready_o  (back_ready),
      .s_exponent_i(piece.exponent),
      .s_mantissa_i(piece.mantissa),
      .s_tuser_i   (piece.is_last),
      .m_tvalid_o  (read_valid),
      .m_tready_i  (kept_ready),
      .m_tdata_o   (read_data),
      .m_tuser_o   (read_last),
      .malformed_o (malformed_back)
    );

    assign wire_ready    = bfp_i ? unpack_ready : arrived_ready;
    assign arrived_valid = bfp_i ? decoded_valid : wire_valid;
    assign arrived_data  = bfp_i ? decoded_data : left_tdata_i;
    assign arrived_last  = bfp_i ? decoded_last : left_tlast_i;
    assign encode_ready  = bfp_i ? encoder_ready : plain_taken;
    assign keep_taken    = bfp_i ? piece_valid && piece_ready && piece.is_last
                                 : encode_valid && plain_taken && encode_last;
    assign out_valid     = bfp_i ? packed_valid : plain_out_valid;
    assign out_data      = bfp_i ? packed_data : encode_data;
    assign out_last      = bfp_i ? packed_last : encode_last;
    assign kept_valid    = bfp_i ? read_valid : plain_kept_valid;
    assign kept_data     = bfp_i ? read_data : encode_data;
    assign kept_last     = bfp_i ? read_last : encode_last;
    assign malformed_o   = malformed_in || malformed_back;
    assign mismatch      = bfp_i ? mismatch_in : mismatch_fp32;
  end else begin : gen_fp32
    assign wire_ready    = arrived_ready;
    assign arrived_valid = wire_valid;
    assign arrived_data  = left_tdata_i;
    assign arrived_last  = left_tlast_i;
    assign encode_ready  = plain_taken;
    assign keep_taken    = encode_valid && plain_taken && encode_last;
    assign out_valid     = plain_out_valid;
    assign out_data      = encode_data;
    assign out_last      = encode_last;
    assign kept_valid    = plain_kept_valid;
    assign kept_data     = encode_data;
    assign kept_last     = encode_last;
    assign malformed_o   = 1'b0;
    assign mismatch      = mismatch_fp32;
    assign command_ready = 1'b1;

    logic unused_command;
    assign unused_command = ^{command_valid, command_beats};
  end

  // --- To the right neighbour, from a register: a checksum over the beat follows ---
  logic right_ready, right_moves;

  assign right_ready   = right_tready_i || !right_tvalid_o;
  assign out_ready     = send_valid && !send_forwards && right_ready;
  assign forward_ready = send_valid && send_forwards && right_ready;
  assign right_moves   = send_valid && (send_forwards ? forward_valid : out_valid) && right_ready;
  assign send_taken    = right_moves && (send_forwards ? left_tlast_i : out_last);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      right_tvalid_o <= 1'b0;
    end else if (right_ready) begin
      right_tvalid_o <= right_moves;
    end
  end

  always_ff @(posedge clk_i) begin
    if (right_ready) begin
      right_tdata_o <= send_forwards ? left_tdata_i : out_data;
      right_tlast_o <= send_forwards ? left_tlast_i : out_last;
    end
  end

  // --- To host memory ---
  logic                 result_valid, result_ready, result_last;
  logic [DataWidth-1:0] result_data;

  assign kept_ready          = store_valid && store_kept && result_ready;
  assign store_arrived_ready = store_valid && !store_kept && result_ready;
  assign result_valid        = store_valid && (store_kept ? kept_valid
                                                          : arrived_valid && landing_valid && !landing_folds);
  assign result_data         = store_kept ? kept_data : arrived_data;
  assign result_last         = store_kept ? kept_last : arrived_last;
  assign store_taken         = result_valid && result_ready && result_last;

  memory_writer #(
    .Lanes     (Lanes),
    .FifoDepth (FifoDepth),
    .BurstBeats(BurstBeats)
  ) u_writer (
    .clk_i,
    .rst_ni,
    .drain_i,
    .idle_o           (writer_idle),
    .chunk_valid_i    (accept && (stores || operation_i.step == StepEnd)),
    .chunk_ready_o    (writer_ready),
    .chunk_i          (write_chunk),
    .s_tvalid_i       (result_valid),
    .s_tready_o       (result_ready),
    .s_tdata_i        (result_data),
    .s_tlast_i        (result_last),
    .command_valid_o  (write_command_valid_o),
    .command_ready_i  (write_command_ready_i),
    .command_address_o(write_command_address_o),
    .command_bytes_o  (write_command_bytes_o),
    .m_tvalid_o       (write_tvalid_o),
    .m_tready_i       (write_tready_i),
    .m_tdata_o        (write_tdata_o),
    .m_tkeep_o        (write_tkeep_o),
    .m_tlast_o        (write_tlast_o),
    .written_i,
    .ended_o
  );

  assign idle_o   = reader_idle && writer_idle;
  assign folded_o = encode_valid && encode_ready && encode_folded;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      moves_o    <= 1'b0;
      mismatch_o <= 1'b0;
    end else begin
      mismatch_o <= mismatch;
      moves_o    <= right_moves || (result_valid && result_ready) || written_i || (read_tvalid_i && read_tready_o);
    end
  end

endmodule
