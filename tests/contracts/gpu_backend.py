"""What every backend of GPUs must do; each one's tests inherit this suite and say how tensors get there."""

from __future__ import annotations

from typing import Any

import pytest

from replkernel.gpu.backend import Backend, Kept, Moved

torch = pytest.importorskip("torch")


class GpuBackendContract:
    """Inherit, and override the fixture `backend` (bound to one GPU) and `put`."""

    @pytest.fixture
    def backend(self) -> Backend:
        raise NotImplementedError

    def put(self, value: Any) -> Any:
        """Return a tensor or a module on the first device."""
        raise NotImplementedError

    def off_and_back(self, backend: Backend) -> int:
        """Suspend and resume on the same GPUs; return the bytes."""
        off = backend.suspend()
        assert isinstance(off, Moved), off
        assert backend.bytes_held() == 0
        back = backend.resume(backend.gpus)
        assert isinstance(back, Moved), back
        assert back.bytes == off.bytes
        assert not backend.suspended
        return off.bytes

    def test_without_tensors_nothing_moves(self, backend: Backend) -> None:
        assert backend.bytes_held() == 0
        off = backend.suspend()
        assert isinstance(off, Moved)
        assert off.bytes == 0
        assert not backend.suspended

    def test_values_come_back_and_nothing_is_held_meanwhile(self, backend: Backend) -> None:
        x = self.put(torch.arange(1000.0))
        assert backend.bytes_held() >= 4000
        assert self.off_and_back(backend) == 4000
        assert torch.equal(x.cpu(), torch.arange(1000.0))
        assert backend.bytes_held() >= 4000

    def test_while_suspended_the_backend_says_so(self, backend: Backend) -> None:
        x = self.put(torch.ones(10))
        backend.suspend()
        assert backend.suspended
        assert x.shape == (10,)
        backend.resume(backend.gpus)
        assert x.sum().item() == 10

    def test_views_and_the_storage_itself_stay_aliases(self, backend: Backend) -> None:
        x = self.put(torch.arange(12.0).reshape(3, 4))
        row, turned, storage = x[1], x.t(), x.untyped_storage()
        self.off_and_back(backend)
        x[1, 2] = 99.0
        assert row[2].item() == 99.0
        assert turned[2, 1].item() == 99.0
        assert storage.data_ptr() == x.data_ptr() == turned.data_ptr()

    def test_tied_weights_gradients_and_hooks_stay(self, backend: Backend) -> None:
        first, second = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False)
        second.weight = first.weight
        model = self.put(torch.nn.Sequential(first, second))
        calls: list[int] = []
        first.weight.register_hook(lambda gradient: calls.append(1))
        first.weight.grad = self.put(torch.ones(4, 4))
        weight, gradient = first.weight, first.weight.grad
        self.off_and_back(backend)
        assert model[0].weight is weight
        assert model[1].weight is weight
        assert weight.grad is gradient
        assert torch.equal(gradient.cpu(), torch.ones(4, 4))
        model(self.put(torch.ones(1, 4))).sum().backward()
        assert calls

    def test_training_goes_on_as_if_nothing_had_been(self, backend: Backend) -> None:
        def losses(moves: bool) -> list[float]:
            torch.manual_seed(3)
            model = self.put(
                torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
            )
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            inputs, targets = self.put(torch.randn(32, 8)), self.put(torch.randn(32, 1))
            seen = []
            for step in range(6):
                optimizer.zero_grad()
                loss = ((model(inputs) - targets) ** 2).mean()
                if moves and step == 3:
                    self.off_and_back(backend)
                loss.backward()
                if moves and step == 4:
                    self.off_and_back(backend)
                optimizer.step()
                seen.append(loss.item())
            return seen

        assert losses(moves=True) == losses(moves=False)

    def test_a_sparse_tensor_comes_back(self, backend: Backend) -> None:
        parts = self.put(torch.tensor([[0, 1], [1, 0]])), self.put(torch.tensor([3.0, 4.0]))
        sparse = torch.sparse_coo_tensor(*parts, (2, 2), check_invariants=False)
        self.off_and_back(backend)
        assert torch.equal(sparse.to_dense().cpu(), torch.tensor([[0.0, 3.0], [4.0, 0.0]]))

    def test_a_tensor_that_goes_while_it_is_off_takes_its_bytes_along(self, backend: Backend) -> None:
        x, y = self.put(torch.ones(1000)), self.put(torch.ones(10))
        backend.suspend()
        del x
        back = backend.resume(backend.gpus)
        assert isinstance(back, Moved)
        assert back.bytes == 40
        assert y.sum().item() == 10

    def test_a_second_suspension_moves_nothing(self, backend: Backend) -> None:
        x = self.put(torch.ones(10))
        backend.suspend()
        again = backend.suspend()
        assert isinstance(again, Moved)
        assert again.bytes == 0
        backend.resume(backend.gpus)
        assert x.sum().item() == 10

    def test_no_memory_on_the_host_leaves_all_on_the_device(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        x, y = self.put(torch.ones(10)), self.put(torch.ones(5))
        room = "replkernel.gpu.host_copy.HostRoom._make"
        monkeypatch.setattr(room, lambda self, size: (_ for _ in ()).throw(RuntimeError("not enough memory")))
        held = backend.bytes_held()
        kept = backend.suspend()
        assert isinstance(kept, Kept)
        assert "not enough memory" in kept.why
        assert not backend.suspended
        assert backend.bytes_held() == held
        assert (x.sum().item(), y.sum().item()) == (10, 5)

    def test_a_copy_back_that_fails_half_way_leaves_all_on_the_host(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from replkernel.gpu import in_place

        x, y = self.put(torch.ones(10)), self.put(torch.ones(5))
        backend.suspend()
        real, calls = in_place.give_back, []

        def fails(*arguments: Any, **options: Any) -> None:
            calls.append(1)
            if len(calls) == 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            real(*arguments, **options)

        monkeypatch.setattr(in_place, "give_back", fails)
        kept = backend.resume(backend.gpus)
        assert isinstance(kept, Kept)
        assert "out of memory" in kept.why
        assert backend.suspended
        assert backend.bytes_held() == 0
        monkeypatch.undo()
        assert isinstance(backend.resume(backend.gpus), Moved)
        assert (x.sum().item(), y.sum().item()) == (10, 5)

    def test_bytes_that_python_cannot_reach_keep_everything_there(self, backend: Backend) -> None:
        import gc

        x, hidden = self.put(torch.ones(10)), self.put(torch.ones(7))
        gc.collect()
        gc.freeze()  # Out of the collector's sight, as an extension's own tensors are.
        try:
            kept = backend.suspend()
            assert isinstance(kept, Kept)
            assert "nothing that Python knows of" in kept.why
        finally:
            gc.unfreeze()
        assert (x.sum().item(), hidden.sum().item()) == (10, 7)

    def test_other_gpus_are_refused_or_taken_whole(self, backend: Backend) -> None:
        x = self.put(torch.ones(10))
        backend.suspend()
        outcome = backend.resume(("GPU-fake-other-0",))
        if isinstance(outcome, Kept):
            assert backend.suspended
            backend.resume(backend.gpus)
        assert not backend.suspended
        assert x.sum().item() == 10
