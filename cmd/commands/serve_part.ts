import { limitSystemCalls } from "../../ffi/sys/confinement.ts";
import { setProcessName } from "../../ffi/sys/process_name.ts";
import type { Command } from "../command.ts";
import { becomeConfined, CONFINED } from "../../server/confine.ts";
import { findPart } from "../../server/part_definitions.ts";
import { PART_PROGRAMS } from "../../server/part_programs.ts";
import type { PartSettings } from "../../server/part_settings.ts";

const servePart: Command = {
  name: "serve-part",
  summary: "do what outlives calls, for the server that started this process",
  arguments: [
    { name: "NAME", help: "of the part" },
    { name: "JSON", help: "its settings" },
    { name: "WORD", help: CONFINED, optional: true },
  ],
  options: [],
  hidden: true,
  run({ words: [name = "", json = "", stage] }) {
    const settings: PartSettings = JSON.parse(json);
    const part = findPart(name);
    const { rights } = part;
    if (rights && stage !== CONFINED) becomeConfined({ ...part, rights }, settings, ["serve-part", name, json]);
    setProcessName(`cni-${name}`);
    if (rights) limitSystemCalls(rights);
    return PART_PROGRAMS[name]!(settings);
  },
};
export default servePart;
