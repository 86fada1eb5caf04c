/** What each part runs, loaded by its process alone. @module */
import type { PartDescriptors, PartSettings } from "./part_settings.ts";

const DESCRIPTORS: PartDescriptors = { listener: 3, lifetime: 4, reports: 5 };

type PartProgram = (settings: PartSettings) => Promise<void>;

export const PART_PROGRAMS: Readonly<Record<string, PartProgram>> = {
  async metrics(settings) {
    const { serveMetrics } = await import("./metrics/serve.ts");
    await serveMetrics(settings, DESCRIPTORS);
  },
};
