/** What each part runs, loaded by its process alone. @module */
import { PART_DESCRIPTORS, type PartSettings } from "./part_settings.ts";

type PartProgram = (settings: PartSettings) => Promise<void>;

export const PART_PROGRAMS: Readonly<Record<string, PartProgram>> = {
  async metrics(settings) {
    const { serveMetrics } = await import("./metrics/serve.ts");
    await serveMetrics(settings, PART_DESCRIPTORS);
  },
};
