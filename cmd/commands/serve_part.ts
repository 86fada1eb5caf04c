import type { Command } from "../command.ts";
import { PART_PROGRAMS } from "../serve/part_programs.ts";

const servePart: Command = {
  name: "serve-part",
  summary: "do what outlives calls, for the server that started this process",
  arguments: [{ name: "NAME", help: "of the part" }, { name: "JSON", help: "its settings" }],
  options: [],
  hidden: true,
  run: ({ words: [name = "", settings = ""] }) => PART_PROGRAMS[name]!(JSON.parse(settings)),
};
export default servePart;
