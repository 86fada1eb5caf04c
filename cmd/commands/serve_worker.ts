import type { Command } from "../command.ts";
import { serveCalls } from "../../server/worker.ts";

const serveWorker: Command = {
  name: "serve-worker",
  summary: "serve calls for the server that started this process",
  arguments: [{ name: "JSON", help: "its place among the workers, and limits" }],
  options: [],
  hidden: true,
  run: ({ words: [options = ""] }, { runProgram }) => serveCalls(JSON.parse(options), runProgram),
};
export default serveWorker;
