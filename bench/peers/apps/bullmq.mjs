// BullMQ on Node.js: the same orders and the same marks as in role.py.

import { closeSync, openSync, writeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.BENCH_MODULES}/`);
const { Queue, Worker } = require('bullmq');
const Redis = require('ioredis');

const BATCH = 100;
const keepsNothing = { removeOnComplete: true };
const connection = new Redis(process.env.BENCH_STORE, { maxRetriesPerRequest: null });
const now = () => process.hrtime.bigint();

if (process.argv[2] === 'produce') {
    const queue = new Queue('bench', { connection });
    await queue.waitUntilReady();
    const one = () => queue.add('nop', 4711, keepsNothing);
    const jobs = Array.from({ length: BATCH }, () => ({ name: 'nop', data: 4711, opts: keepsNothing }));
    const many = () => queue.addBulk(jobs);
    const said = (begun, count) =>
        console.log(JSON.stringify({ begun: Number(begun), count, seconds: Number(now() - begun) / 1e9 }));
    console.log('{"ready": true}');
    for await (const line of createInterface({ input: process.stdin })) {
        const order = JSON.parse(line);
        const begun = now();
        if (order.do === 'stamp') {
            await queue.add('stamp', null, keepsNothing);
            said(begun, 1);
            continue;
        }
        const [call, each] = order.do === 'single' ? [one, 1] : [many, BATCH];
        const until = begun + BigInt(Math.round(order.seconds * 1e9));
        let count = 0;
        while (now() < until) {
            await call();
            count += each;
        }
        said(begun, count);
    }
    process.exit(0);
} else {
    const marks = openSync(process.env.BENCH_MARKS, 'a');
    const stamps = openSync(process.env.BENCH_STAMPS, 'a');
    const handle = async (job) => {
        if (job.name === 'stamp') {
            writeSync(stamps, String(now()).padStart(20, '0'));
        } else {
            writeSync(marks, '.');
        }
    };
    const worker = new Worker('bench', handle, { connection, concurrency: Number(process.argv[3]) });
    process.on('SIGTERM', async () => {
        await worker.close();
        closeSync(marks);
        closeSync(stamps);
        process.exit(0);
    });
}
