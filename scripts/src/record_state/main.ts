import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { addStateAttachments, newStateHost } from "../../../testing/state_host.ts";
import { STATE_SAMPLES, VERSION } from "./samples.ts";

using host = await newStateHost();
await addStateAttachments(host);
mkdirSync(STATE_SAMPLES, { recursive: true });
const path = join(STATE_SAMPLES, `${VERSION}.json`);
writeFileSync(path, `${JSON.stringify(host.readState(), undefined, 2)}\n`);
console.log(`Wrote ${path}`);
