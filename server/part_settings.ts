/** What the server's command line says about its parts; their processes get it as JSON. */
export interface PartSettings {
  /** The names of those that the server has. */
  readonly parts: readonly string[];
  /** The server's. */
  readonly socket: string;
  /** That of the socket: sockets and state of the parts are in it. */
  readonly directory: string;
  readonly logFormat: "text" | "json";
  readonly confDirectory: string;
  readonly pluginDirectories: readonly string[];
  /** Where to look for attachments. */
  readonly cacheDirectories: readonly string[];
  /** Whether bridges get addresses back, and ports their bridge. */
  readonly healLinks: boolean;
  /** `127.0.0.1:9469` or `unix:PATH`. */
  readonly metricsAddress?: string;
}

/** Descriptors that the server gives to the process of a part. */
export interface PartDescriptors {
  readonly listener: number;
  /** A pipe that ends with the server. */
  readonly lifetime: number;
  /** A pipe: metrics read what the others write. */
  readonly reports: number;
  /** Where parts say whether they have work, see part_work.ts. */
  readonly work: number;
}

/** Their numbers in that process. */
export const PART_DESCRIPTORS: PartDescriptors = { listener: 3, lifetime: 4, reports: 5, work: 6 };
