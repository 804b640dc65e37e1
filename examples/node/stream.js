// Streams a completion and prints its acceptance: node stream.js [PROMPT] [HOST:PORT]
import { fileURLToPath } from "node:url";

import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const [prompt = "def read_lines(path):", address = "127.0.0.1:50050"] = process.argv.slice(2);

const definition = protoLoader.loadSync("specpair/v1/coordinator_service.proto", {
  includeDirs: [fileURLToPath(new URL("../../proto", import.meta.url))],
  keepCase: true,
  defaults: true,
  longs: String, // seeds have 64 bits, JavaScript's numbers 53
});
const { specpair } = grpc.loadPackageDefinition(definition);
const coordinator = new specpair.v1.CoordinatorService(address, grpc.credentials.createInsecure());

const call = coordinator.GenerateTokens({
  text: prompt,
  max_tokens: 64,
  num_speculative_tokens: 4,
  sampling: { temperature: 0.7 },
});

try {
  for await (const { text, summary } of call) {
    process.stdout.write(text);
    if (summary) {
      const { accepted_token_count, draft_token_count, acceptance_rate, tokens_per_round } = summary.speculation;
      const rate = `${(100 * acceptance_rate).toFixed(1)}%`;
      console.error(`\nacceptance rate ${rate} (${accepted_token_count} of ${draft_token_count})`);
      console.error(`${tokens_per_round.toFixed(2)} tokens per round`);
    }
  }
} catch (error) {
  console.error(`${grpc.status[error.code] ?? "error"}: ${error.details ?? error.message}`);
  process.exitCode = 1;
} finally {
  coordinator.close();
}
