"""Commands that touch many jobs: how far they are."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.core.errors import NotFound
from headgate.engines.contract import Task
from headgate.server.answers import answer
from headgate.server.context import Context
from headgate.server.roles import OPERATORS
from headgate.server.route import Answer, Request, Route
from headgate.wire import paging
from headgate.wire.bulk import TaskAnswer, TaskInfo, TaskList

NUMBERED = {
    "page": "Which page, from 1.",
    "per_page": f"How many, up to {paging.MOST_PER_PAGE}; {paging.PER_PAGE} by default.",
}


def task_info(task: Task) -> TaskInfo:
    return TaskInfo(task.id, task.kind, task.matched, task.done, task.skipped, task.finished)


async def list_tasks(context: Context, request: Request) -> Answer:
    page = paging.numbered(request.query)
    tasks = await context.engine.tasks(request.now_ms)
    shown = tasks[page.offset : page.offset + page.limit]
    return answer(TaskList([task_info(task) for task in shown], page.pagination(len(tasks))))


async def info(context: Context, request: Request) -> Answer:
    (task_id,) = request.params
    for task in await context.engine.tasks(request.now_ms):
        if task.id == task_id:
            return answer(TaskAnswer(task_info(task)))
    raise NotFound(f"there is no task {task_id}", details={"task_id": task_id})


ROUTES: Sequence[Route] = (
    Route("GET", "/ojs/v1/admin/tasks", list_tasks, OPERATORS, tag="admin",
          summary="List the commands that touch many jobs", response=TaskList, query=NUMBERED,
          errors=(400,)),
    Route("GET", "/ojs/v1/admin/tasks/{id}", info, OPERATORS, tag="admin",
          summary="How far such a command is", response=TaskAnswer, errors=(404,)),
)  # fmt: skip
